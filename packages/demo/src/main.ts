import { TestbedError } from '@fenced/testbed';
import { readCommandLine } from '@fenced/testbed/command-line';
import { type Cell, playCell } from './cell.js';
import { type DemoOptions, parseOptions, USAGE } from './options.js';
import { isTold, playsOf } from './scenarios/scenario.js';
import { type Store, startLockNodes, startStore } from './services.js';
import { renderCell, renderStory, renderTable } from './timeline.js';

/** Plays the cells that were asked for. The exit code is 0 exactly where all were played and every verdict is the pinned one. */
async function main(options: DemoOptions): Promise<number> {
  const tell = (text: string): void => {
    if (!options.json) process.stdout.write(`${text}\n`);
  };
  await using services = new AsyncDisposableStack();
  const [redis, ...stores] = await Promise.all([
    startLockNodes().then((service) => services.use(service)),
    ...options.stores.map((kind) => startStore(kind).then((store) => services.use(store))),
  ]);
  const programs = {
    redis: `${redis.nodes.length} × ${redis.program}`,
    ...Object.fromEntries(stores.map(({ kind, program }) => [kind, program])),
  };
  tell(`Real servers: ${Object.values(programs).join(', ')}.`);
  tell('The document is a list; each client adds its own number to it: [1, 2].');

  const cells: Cell[] = [];
  const notPlayed: { readonly title: string; readonly reason: string }[] = [];
  for (const scenario of options.scenarios) {
    tell(renderStory(scenario));
    const told = stores.filter(({ kind }) => isTold(scenario, kind));
    try {
      for (const play of playsOf(scenario)) {
        // Side by side: the stores share nothing but the machine.
        const on = (store: Store): Promise<Cell> => playCell(play, store, redis.nodes);
        for (const cell of await Promise.all(told.map(on))) {
          cells.push(cell);
          tell(renderCell(cell));
        }
      }
    } catch (error) {
      if (!(error instanceof TestbedError && error.code === 'unavailable')) throw error;
      notPlayed.push({ title: scenario.title, reason: error.message });
      tell(`NOT PLAYED: ${error.message}`);
    }
  }
  tell(renderTable(cells));
  for (const { title, reason } of notPlayed) tell(`Not played: ${title}: ${reason}`);
  if (options.json)
    process.stdout.write(`${JSON.stringify({ services: programs, cells, notPlayed }, null, 2)}\n`);
  return notPlayed.length === 0 && cells.every((cell) => cell.verdict === cell.pinned) ? 0 : 1;
}

// Whoever reads only the beginning (`npm run demo | head`) has closed the pipe: nothing is left to tell.
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
