import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { GO, installed, PYTHON } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Front, GatewayWorld, until } from '../gateway/harness/world.js';

/** On a new machine, the test installs the language, and Go compiles its standard library. */
const COLD_MS = 600_000;
const EXAMPLES = join(import.meta.dirname, '../../examples');

const parts = new AsyncDisposableStack();
let gateway: Front;

beforeAll(async () => {
  const world = parts.use(await GatewayWorld.start());
  gateway = parts.use(await world.open());
});
afterAll(() => parts.disposeAsync());

/** Starts a program that appends each line of its input to an object. */
function start(command: string, args: readonly string[]) {
  const child = spawn(command, args, { env: { ...process.env, FENCED_URL: gateway.url } });
  parts.defer(() => void child.kill('SIGKILL'));
  const lines: string[] = [];
  for (const output of [child.stdout, child.stderr])
    createInterface(output).on('line', (line) => lines.push(line));
  const printed = (line: string) =>
    until(() => {
      if (child.exitCode !== null && !lines.includes(line)) throw new Error(lines.join('\n'));
      return lines.includes(line);
    });
  const write = (line: string): unknown => child.stdin.write(`${line}\n`);
  return { printed, write, signal: (name: NodeJS.Signals) => child.kill(name) };
}

/** Pauses the first holder: its next write comes after the write of the second holder. */
async function pauseBeforeLine(command: string, ...args: readonly string[]): Promise<void> {
  const first = start(command, args);
  await first.printed('holds the lease');
  first.write('one');
  await first.printed('has written one');
  first.signal('SIGSTOP');
  first.write('late');
  const second = start(command, args);
  await second.printed('holds the lease');
  second.write('two');
  await second.printed('has written two');
  first.signal('SIGCONT');
  await first.printed('refused: urn:fenced:problem:stale-token');
  const name = args.at(-1) ?? '';
  const current = await gateway.objects.get(name);
  expect(new TextDecoder().decode(current?.body)).toBe('one\ntwo\n');
}

test('gateway-python: a paused program is refused', { timeout: COLD_MS }, async () => {
  const python = await installed(PYTHON);
  await pauseBeforeLine(python, join(EXAMPLES, 'gateway-python/main.py'), 'python');
});

test('gateway-go: a paused program is refused', { timeout: COLD_MS }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'fenced-go-'));
  parts.defer(() => rm(folder, { recursive: true }));
  const program = join(folder, 'main');
  const source = join(EXAMPLES, 'gateway-go/main.go');
  await promisify(execFile)(await installed(GO), ['build', '-o', program, source]);
  await pauseBeforeLine(program, 'go');
});
