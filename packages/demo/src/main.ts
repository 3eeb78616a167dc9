import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempDisposable, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { TestbedError } from '@fenced/testbed';
import { readCommandLine } from '@fenced/testbed/command-line';
import { type Cell, playCell } from './cell.js';
import { Display } from './display.js';
import type { LockServers } from './job.js';
import { type DemoOptions, parseOptions, USAGE } from './options.js';
import { picture } from './picture.js';
import { type Store, startLockServers, startStore } from './services.js';
import { stories as allStories } from './stories/all.js';
import { isPlayedOn, type Story, type Variant, variantsOf } from './stories/story.js';
import { briefVerdict, introduction, lesson, storyTitle, table, verdict } from './texts.js';
import { Timeline } from './timeline.js';
import { LiveRuns } from './web/live-runs.js';
import { WebServer } from './web/server.js';

const PAGE_BUILD = fileURLToPath(new URL('../../page/build.ts', import.meta.url));

/** Plays the chosen stories. Returns exit code 0 if all were played with the expected verdicts. */
async function main({ stories, stores: kinds, ...options }: DemoOptions): Promise<number> {
  if (options.isList) return list(stories);
  using display = new Display(options.isJson ? 'live' : options.pace, (text) => {
    if (!options.isJson) process.stdout.write(text);
  });
  await using services = new AsyncDisposableStack();
  const [locks, ...stores] = await Promise.all([
    startLockServers(options.lock).then((group) => services.use(group)),
    ...kinds.map((kind) => startStore(kind).then((store) => services.use(store))),
  ]);
  const programs: Record<string, string> = {
    [options.lock === 'redis' ? 'redis' : 'lock']: locks.program,
    ...Object.fromEntries(stores.map(({ kind, program }) => [kind, program])),
  };
  const { servers } = locks;
  if (options.isWeb && !('kind' in servers))
    return await serve({ stories, stores, nodes: servers, programs });
  display.line(introduction(Object.values(programs)));
  if (options.pace === 'step') display.line('\nPress Enter for the next row.');

  const cells: Cell[] = [];
  const notPlayed: { readonly title: string; readonly reason: string }[] = [];
  for (const story of stories) {
    const used = stores.filter(({ kind }) => isPlayedOn(story, kind));
    const isFull = options.isFull || story.number === 1;
    const play = isFull ? playInFull : playBriefly;
    display.line(storyTitle(story));
    try {
      for await (const played of play(story, used, servers, display)) cells.push(...played);
    } catch (error) {
      if (!(error instanceof TestbedError && error.code === 'unavailable')) throw error;
      notPlayed.push({ title: story.title, reason: error.message });
      display.line(`NOT PLAYED: ${error.message}`);
    }
    display.line(lesson(story, isFull ? allStories[allStories.indexOf(story) + 1] : undefined));
  }
  display.line(table(cells));
  const [shown] = stores;
  if (options.svg !== null && shown && cells.every(isExpected))
    await writeFile(options.svg, picture(cells, shown.kind, programs));
  for (const { title, reason } of notPlayed) display.line(`Not played: ${title}: ${reason}`);
  await display.printed();
  if (options.isJson)
    process.stdout.write(`${JSON.stringify({ services: programs, cells, notPlayed }, null, 2)}\n`);
  return notPlayed.length === 0 && cells.every(isExpected) ? 0 : 1;
}

/**
 * Prints the timeline of each variant while it happens on the first store. The other store plays at
 * the same time, and has a timeline only if its verdict is unexpected.
 */
async function* playInFull(
  story: Story,
  stores: readonly Store[],
  servers: LockServers,
  display: Display,
): AsyncGenerator<readonly Cell[]> {
  for (const variant of variantsOf(story)) {
    const [shown] = stores;
    if (!shown) return;
    const timeline = new Timeline(variant, shown.kind, display);
    const cells = await Promise.all(
      stores.map((store) =>
        playCell(variant, store, servers, (event) => {
          if (store === shown) timeline.add(event);
        }),
      ),
    );
    await timeline.finish();
    for (const [at, cell] of cells.entries()) {
      if (at > 0 && !isExpected(cell)) await replay(variant, cell, display);
      display.line(verdict(cell, at === 0 ? '' : `On ${cell.store}: `));
    }
    display.line();
    yield cells;
  }
}

async function replay(variant: Variant, cell: Cell, display: Display): Promise<void> {
  const timeline = new Timeline(variant, cell.store, display);
  for (const event of cell.history) timeline.add(event);
  await timeline.finish();
}

/** Prints each verdict as soon as it is known. */
async function* playBriefly(
  story: Story,
  stores: readonly Store[],
  servers: LockServers,
  display: Display,
): AsyncGenerator<readonly Cell[]> {
  let previous: Variant | null = null;
  for (const variant of variantsOf(story)) {
    const cells = await Promise.all(stores.map((store) => playCell(variant, store, servers)));
    const isSameLock = previous?.lock === variant.lock;
    const begin = variant.lock === 'fenced' ? '' : `… ${variant.lock}: `;
    display.text(`${isSameLock ? ', ' : `${previous ? '\n' : ''}${begin}`}${briefVerdict(cells)}`);
    previous = variant;
    yield cells;
  }
  display.line('\n');
}

/** Serves the page until the process is interrupted. */
async function serve(parts: ConstructorParameters<typeof LiveRuns>[0]): Promise<number> {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'fenced-page-'));
  await promisify(execFile)(process.execPath, [PAGE_BUILD, '--out', folder.path]);
  await using web = await WebServer.start(folder.path, new LiveRuns(parts));
  process.stdout.write(`${web.url}#/real\n`);
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  return 0;
}

function list(stories: readonly Story[]): number {
  for (const { number, title } of stories)
    process.stdout.write(`${`${number}`.padStart(2)}  ${title}\n`);
  return 0;
}

function isExpected({ verdict, pinned }: Cell): boolean {
  return verdict === pinned;
}

// `npm run demo | head` closes the pipe early. Then nobody reads the rest.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

try {
  process.exitCode = await main(readCommandLine(USAGE, parseOptions));
} catch (error) {
  if (!(error instanceof TestbedError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}
