import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  type Cell,
  isTold,
  playCell,
  playsOf,
  protections,
  type Store,
  scenarios,
  startLockNodes,
  startStore,
  stores,
} from '@fenced/demo';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const services = new AsyncDisposableStack();
let nodes: Awaited<ReturnType<typeof startLockNodes>>['nodes'];
beforeAll(async () => {
  nodes = services.use(await startLockNodes()).nodes;
});
afterAll(() => services.disposeAsync());

describe('on every store', () => {
  const opened: Store[] = [];
  beforeAll(async () => {
    for (const kind of stores) opened.push(services.use(await startStore(kind)));
  });

  const plays = scenarios
    .flatMap(playsOf)
    .map((play) => [play.scenario.title, play.protection, play.lock, play] as const);
  // Side by side, as in the demo: a play mostly waits.
  test.each(plays)(
    '%s, protected by %s of %s, ends as pinned',
    async (_, _2, _3, play) => {
      const told = opened.filter(({ kind }) => isTold(play.scenario, kind));
      const cells = await Promise.all(told.map((store) => playCell(play, store, nodes)));
      expect(cells).not.toHaveLength(0);
      for (const cell of cells) {
        expect(cell, JSON.stringify(cell.history, null, 1)).toMatchObject({ verdict: cell.pinned });
        checkTokens(cell);
      }
    },
    60_000,
  );
});

/** Of attempts that failed before anybody had the lock: their numbers are never given again. */
const failedBefore: readonly string[] = ['The late grants', 'The highest counter'];

const naiveTokens: Readonly<Record<string, readonly string[]>> = {
  'All nodes are wiped': ['33', '1'],
  'The counter on one node': ['33', '33'],
  'The highest counter': ['34', '34'],
};

function checkTokens({ title, lock, protection, verdict, tokens }: Cell): void {
  if (verdict === 'refused') {
    expect(tokens).toEqual([]);
    return;
  }
  if (lock !== 'fenced' || protection === 'none') {
    expect(tokens).toEqual(naiveTokens[title] ?? []);
    return;
  }
  const given = tokens.map(BigInt);
  const [first = 0n] = given;
  expect(first > 33n).toBe(failedBefore.includes(title));
  expect(first).toBeGreaterThanOrEqual(33n);
  expect(given).toHaveLength(title === 'The ETag comes back' ? 3 : 2);
  for (const [at, token] of given.slice(1).entries())
    expect(token).toBeGreaterThan(given[at] ?? token);
}

describe('the command', () => {
  const main = fileURLToPath(new URL('../../packages/demo/dist/main.js', import.meta.url));
  const demo = (...args: string[]) =>
    promisify(execFile)(process.execPath, [main, ...args], { maxBuffer: 1e8 }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({
        code,
        stdout,
        stderr,
      }),
    );

  test('prints one JSON document whose every verdict is the pinned one, and exits with 0', async () => {
    const { code, stdout } = await demo('--json', '--only', '1', '--store', 'postgres');
    const { services: programs, cells } = JSON.parse(stdout);
    expect(Object.keys(programs)).toEqual(['redis', 'postgres']);
    const played = cells.map(({ protection }: { protection: string }) => protection);
    expect(played).toEqual(protections.filter((protection) => protection !== 'metadata'));
    for (const cell of cells) {
      expect(cell).toMatchObject({ scenario: 1, store: 'postgres', verdict: cell.pinned });
      expect(cell.history.length).toBeGreaterThan(5);
    }
    expect(code).toBe(0);
  }, 60_000);

  test('tells a timeline that fits 80 columns and needs no colour', async () => {
    const { code, stdout } = await demo('--only', '3,6', '--store', 'postgres');
    expect(code).toBe(0);
    expect(stdout).not.toContain('\u001b');
    for (const line of stdout.split('\n')) expect([...line].length, line).toBeLessThanOrEqual(80);
    expect(stdout).toContain('client 1          client 2          lock nodes        storage');
    expect(stdout).toMatch(/write REFUSED, 34 was seen/);
    expect(stdout).toContain('7 of 7 verdicts are as expected.');
  }, 60_000);

  test.each([
    [
      ['--only', '99'],
      `--only takes the numbers ${[...new Set(scenarios.map(({ number }) => number))].join(', ')}: 99`,
    ],
    [['--store', 'mysql'], '--store must be one of s3, postgres: mysql'],
    [['--only', '10', '--store', 'postgres'], '--only 10 is not told on postgres'],
    [['--colour'], "Unknown option '--colour'"],
  ])('does not understand %s, says why, and exits with 64', async (args, message) => {
    const { code, stderr } = await demo(...args);
    expect(stderr).toContain(message);
    expect(code).toBe(64);
  });
});
