import { parseArgs } from 'node:util';
import { UsageError } from '@fenced/testbed/command-line';
import type { Pace } from './display.js';
import { type LockServiceKind, lockServices, type StoreKind, stores } from './job.js';
import { stories } from './stories/all.js';
import { pausedBeforeWrite } from './stories/paused-before-write.js';
import { isPlayedOn, isPlayedUnder, type Story } from './stories/story.js';

export interface DemoOptions {
  readonly stories: readonly Story[];
  readonly stores: readonly StoreKind[];
  readonly lock: LockServiceKind;
  /** Prints timelines for all stories. Otherwise only story 1 has timelines. */
  readonly isFull: boolean;
  readonly pace: Pace;
  /** Prints one JSON document instead of text. */
  readonly isJson: boolean;
  /** File for a picture of story 1. */
  readonly svg: string | null;
  /** Prints the names of the stories, and plays none. */
  readonly isList: boolean;
  /** Serves a page that plays the stories, and prints its address. */
  readonly isWeb: boolean;
}

const numbers: readonly number[] = [...new Set(stories.map(({ number }) => number))];

export const USAGE: string = `npm run demo -- [--only 1,3] [--store s3|postgres] [--lock etcd] [--pace slow|step]
npm run demo -- --only 1 --svg FILE
npm run demo -- --web [--only 1,3] [--store s3|postgres]
npm run demo -- --list
npm run --silent demo -- --json [--only 1,3] [--store s3|postgres]

Plays story 1 in full, and prints the verdicts of the others.

  --only    play these stories in full, by number, with commas between (${numbers.join(',')})
  --store   play on one store (both: ${stores.join(', ')})
  --lock    the lock service (redis): ${lockServices.join(', ')};
            stories 1 to 3 are the same with each
  --pace    slow: pause before each row; step: print a row for each Enter
  --svg     draw story 1 on the first store into this file, if all verdicts are as expected
  --web     serve a page on this machine that plays these stories, and lets you stop processes
            and break nodes
  --list    print the names of the stories
  --json    print one JSON document instead of text`;

/** @throws {UsageError} if an option has a wrong value */
export function parseOptions(): DemoOptions {
  const { values } = parseArgs({
    options: {
      only: { type: 'string' },
      store: { type: 'string' },
      lock: { type: 'string', default: 'redis' },
      pace: { type: 'string' },
      svg: { type: 'string' },
      list: { type: 'boolean', default: false },
      web: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
    },
  });
  const { only, store, pace = 'live', svg = null, list, web, json } = values;
  if (store !== undefined && !stores.includes(store as StoreKind))
    throw new UsageError(`--store must be one of ${stores.join(', ')}: ${store}`);
  const lock = lockServices.find((kind) => kind === values.lock);
  if (lock === undefined)
    throw new UsageError(`--lock must be one of ${lockServices.join(', ')}: ${values.lock}`);
  if (web && lock !== 'redis') throw new UsageError('--web shows Redis nodes: leave out --lock');
  if (values.pace !== undefined && pace !== 'slow' && pace !== 'step')
    throw new UsageError(`--pace must be slow or step: ${pace}`);
  const chosen = stores.filter((kind) => store === undefined || store === kind);
  const asked = only === undefined ? stories : only.split(',').flatMap(byNumber);
  const stored = asked.filter((story) => chosen.some((kind) => isPlayedOn(story, kind)));
  if (stored.length === 0) throw new UsageError(`--only ${only} is not played on ${store}`);
  const played = stored.filter((story) => isPlayedUnder(story, lock));
  if (played.length === 0) throw new UsageError(`--only ${only} is not played with --lock ${lock}`);
  if (svg !== null && !played.includes(pausedBeforeWrite))
    throw new UsageError(`--svg draws story 1, which --only ${only} leaves out`);
  return {
    stories: played,
    stores: chosen,
    lock,
    isFull: only !== undefined,
    pace: pace as Pace,
    isJson: json,
    svg,
    isList: list,
    isWeb: web,
  };
}

/** Returns all stories with this number: two stories share number 9. */
function byNumber(text: string): Story[] {
  const found = stories.filter(({ number }) => String(number) === text.trim());
  if (found.length > 0) return found;
  throw new UsageError(`--only takes the numbers ${numbers.join(', ')}: ${text}`);
}
