import { parseArgs } from 'node:util';
import { UsageError } from '@fenced/testbed/command-line';
import { type StoreKind, stores } from './job.js';
import { scenarios } from './scenarios/all.js';
import { isTold, type Scenario } from './scenarios/scenario.js';

export interface DemoOptions {
  readonly scenarios: readonly Scenario[];
  readonly stores: readonly StoreKind[];
  /** One JSON document on standard output instead of the timeline. */
  readonly json: boolean;
}

const numbers: readonly number[] = [...new Set(scenarios.map(({ number }) => number))];

export const USAGE: string = `npm run demo -- [--only 1,3] [--store s3|postgres]
npm run --silent demo -- --json [--only 1,3] [--store s3|postgres]

  --only    the scenarios to play, by number, with commas between (all: ${numbers.join(',')})
  --store   the store to play them on (both: ${stores.join(', ')})
  --json    print one JSON document instead of the timeline`;

/** @throws {UsageError} if an option has a value that it does not take */
export function parseOptions(): DemoOptions {
  const { values } = parseArgs({
    options: {
      only: { type: 'string' },
      store: { type: 'string' },
      json: { type: 'boolean' },
    },
  });
  const { only, store, json } = values;
  if (store !== undefined && !stores.includes(store as StoreKind)) {
    throw new UsageError(`--store must be one of ${stores.join(', ')}: ${store}`);
  }
  const chosen = stores.filter((kind) => store === undefined || store === kind);
  const asked = only === undefined ? scenarios : only.split(',').flatMap(byNumber);
  const told = asked.filter((scenario) => chosen.some((kind) => isTold(scenario, kind)));
  if (told.length === 0) throw new UsageError(`--only ${only} is not told on ${store}`);
  return { scenarios: told, stores: chosen, json: json ?? false };
}

/** Some stories are told in two ways under one number. */
function byNumber(text: string): Scenario[] {
  const found = scenarios.filter(({ number }) => String(number) === text.trim());
  if (found.length > 0) return found;
  throw new UsageError(`--only takes the numbers ${numbers.join(', ')}: ${text}`);
}
