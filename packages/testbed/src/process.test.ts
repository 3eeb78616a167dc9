import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { BreakpointError } from './breakpoint.js';
import {
  parentIn,
  processState,
  stateIn,
  WorkerEndedError,
  type WorkerOptions,
  WorkerProcess,
} from './process.js';

const source = new URL('./fixtures/worker.ts', import.meta.url);
const lastCheck = { file: source, text: 'return edited;' };

/** Waits until the assertion holds, also on a slow machine. */
const eventually = (assertion: () => void | Promise<void>) => vi.waitFor(assertion, 20_000);

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fenced-process-test-'));
});
afterAll(() => rm(folder, { recursive: true }));

let outputs = 0;

/** Starts a worker. Returns it with its output and with the path of the file that it writes. */
async function start(ending: string, options: WorkerOptions & { readonly rounds?: number } = {}) {
  outputs += 1;
  const path = join(folder, `output-${outputs}`);
  const lines: string[] = [];
  const worker = await WorkerProcess.start(source, {
    ...options,
    args: [ending, path, String(options.rounds ?? 1)],
    onLine: (line) => lines.push(line),
  });
  return { worker, path, lines };
}

/** The number that the worker printed after `words at`. */
function timeMs(lines: readonly string[], words: string): number {
  return Number(lines.find((line) => line.startsWith(words))?.split(' at ')[1]);
}

test('a worker is held and stopped between its last check and its write, and continues there', async () => {
  const { worker, path, lines } = await start('return', { stopAt: lastCheck });
  await using _ = worker;
  await worker.reachedStop();
  await worker.pause();
  expect(await processState(worker.pid)).toBe('T');
  await eventually(() => expect(lines).toHaveLength(2));

  const pauseMs = 300;
  await setTimeout(pauseMs);
  expect(lines).toEqual(['started', expect.stringMatching(/^checked 1/)]);
  expect(existsSync(path)).toBe(false);
  expect(await worker.isStopped()).toBe(true);

  await worker.wake();
  expect(await worker.exited).toEqual({ code: 0, signal: null });
  expect(readFileSync(path, 'utf8')).toBe('edited in round 1');
  // The clock of the worker continued while the worker was stopped.
  expect(timeMs(lines, 'wrote 1') - timeMs(lines, 'checked 1')).toBeGreaterThan(pauseMs);
  expect(worker.stderr).toBe('');
});

test('a held worker continues without a stop, and is held only once', async () => {
  const { worker, lines } = await start('return', { stopAt: lastCheck, rounds: 3 });
  await using _ = worker;
  await worker.reachedStop();
  expect(await worker.isStopped()).toBe(false);
  expect(lines.filter((line) => line.startsWith('wrote'))).toEqual([]);
  worker.proceed();
  expect(await worker.exited).toEqual({ code: 0, signal: null });
  expect(lines.filter((line) => line.startsWith('wrote'))).toHaveLength(3);
});

test('a worker that is held and stopped continues after SIGCONT and `proceed`', async () => {
  const { worker, path } = await start('return', { stopAt: lastCheck });
  await using _ = worker;
  await worker.reachedStop();
  await worker.pause();
  process.kill(worker.pid, 'SIGCONT');
  await eventually(async () => expect(await worker.isStopped()).toBe(false));
  expect(existsSync(path)).toBe(false);
  worker.proceed();
  expect(await worker.exited).toEqual({ code: 0, signal: null });
  expect(existsSync(path)).toBe(true);
});

test('many workers are held, stopped and woken at the same time', async () => {
  const started = await Promise.all(
    Array.from({ length: 6 }, () => start('return', { stopAt: lastCheck })),
  );
  await Promise.all(started.map(({ worker }) => worker.reachedStop()));
  await Promise.all(started.map(({ worker }) => worker.pause()));
  await Promise.all(started.map(({ worker }) => worker.wake()));
  for (const { worker, path } of started) {
    expect(await worker.exited).toEqual({ code: 0, signal: null });
    expect(existsSync(path)).toBe(true);
  }
});

test.each([
  ['returns', 'return', 0, ''],
  ['exits', 'exit', 3, ''],
  ['throws', 'throw', 1, 'the worker is broken'],
])(
  'a worker that %s without coming to its stop is reported with what it said',
  async (_, ending, code, words) => {
    const { worker } = await start(ending, { stopAt: { file: source, text: "say('never');" } });
    const error = await worker.reachedStop().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(WorkerEndedError);
    expect(error).toMatchObject({ exit: { code, signal: null } });
    expect(String(error)).toContain(words);
    expect(worker.stderr).toContain(words);
    expect(worker.stderr).not.toMatch(/debugger/i);
  },
);

test('a missing place is refused before the worker starts', async () => {
  const start = (file: URL | string, text: string) =>
    WorkerProcess.start(source, { stopAt: { file, text } });
  await expect(start(source, 'nowhere in the file')).rejects.toThrow(/exactly once.*times=0/);
  await expect(start(source, 'edited')).rejects.toThrow(/exactly once.*times=\d/);
  await expect(start('/no/such/file.js', 'return')).rejects.toThrow(BreakpointError);
});

test('a place without a statement is refused, not moved', async () => {
  const { worker } = await start('return', {
    stopAt: { file: source, text: '// A statement that never runs.' },
  });
  await expect(worker.reachedStop()).rejects.toThrow(/no statement begins .*worker\.ts line=17/);
  expect(await worker.exited).toEqual({ code: 0, signal: null });
});

test('waiting for the stop of a worker without stopAt is an error', async () => {
  const { worker } = await start('return');
  await expect(worker.reachedStop()).rejects.toThrow(BreakpointError);
  await worker.exited;
});

test("a program that cannot be loaded is reported with Node's message", async () => {
  const worker = await WorkerProcess.start(join(folder, 'missing.js'), { stopAt: lastCheck });
  await expect(worker.reachedStop()).rejects.toThrow(/missing\.js/);
});

test('a debugger statement of the program does not hold it', async () => {
  const path = join(folder, 'debugger.js');
  await writeFile(path, "debugger;\nconsole.log('past it');\nprocess.exitCode = 7;\n");
  const lines: string[] = [];
  const worker = await WorkerProcess.start(path, {
    stopAt: { file: path, text: 'process.exitCode' },
    onLine: (line) => lines.push(line),
  });
  await worker.reachedStop();
  await eventually(() => expect(lines).toEqual(['past it']));
  worker.proceed();
  expect(await worker.exited).toEqual({ code: 7, signal: null });
});

test('a worker without stopAt is stopped and woken anywhere', async () => {
  const { worker, lines } = await start('serve');
  await using _ = worker;
  await eventually(() => expect(lines).toEqual(['started']));
  await worker.pause();
  expect(await worker.isStopped()).toBe(true);
  await worker.wake();
  expect(await worker.isStopped()).toBe(false);
  expect(await worker.kill('SIGTERM')).toEqual({ code: null, signal: 'SIGTERM' });
});

test('a stopped worker and a held one can be killed', async () => {
  const stopped = await start('serve');
  await stopped.worker.pause();
  expect(await stopped.worker.kill()).toEqual({ code: null, signal: 'SIGKILL' });
  expect(await stopped.worker.isStopped()).toBe(false);
  await expect(stopped.worker.pause()).rejects.toThrow(WorkerEndedError);

  const held = await start('return', { stopAt: lastCheck });
  await held.worker.reachedStop();
  expect(await held.worker.kill()).toEqual({ code: null, signal: 'SIGKILL' });
  expect(existsSync(held.path)).toBe(false);
});

test('the end of a long standard error is kept', async () => {
  const { worker } = await start('complain');
  await worker.exited;
  expect(worker.stderr).toMatch(/last words\n$/);
  expect(worker.stderr).toHaveLength(65_536);
});

test('held and stopped workers end when their parent is killed', async () => {
  // The parent runs from its source, whose imports have the names of compiled files.
  const hooks = `import { registerHooks } from 'node:module';
    const resolve = (name, context, next) => next(name.replace(/^([.].*)[.]js$/, '$1.ts'), context);
    registerHooks({ resolve });`;
  const reported: string[] = [];
  const parent = await WorkerProcess.start(
    new URL('./fixtures/killed-parent.ts', import.meta.url),
    {
      env: { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hooks)}` },
      onLine: (line) => reported.push(line),
    },
  );
  await eventually(() => expect(reported).toHaveLength(1));
  const pids = reported.flatMap((line) => line.split(' ').map(Number));
  expect(await Promise.all(pids.map(processState))).toEqual(['S', 'T', 'T']);
  await parent.kill();
  // An ended orphan stays listed until the system's first process reaps it.
  const gone = expect.toBeOneOf([null, 'Z']);
  await eventually(async () => {
    expect(await Promise.all(pids.map(processState))).toEqual([gone, gone, gone]);
  });
});

test('the state of a process is found behind a program name with spaces and parentheses', () => {
  expect(stateIn('17 (a) T (b) R 1 17 17 0')).toBe('R');
  expect(stateIn('17 (node) T 1 17 17 0')).toBe('T');
  expect(parentIn('17 (a) T (b) R 1 17 17 0')).toBe(1);
});
