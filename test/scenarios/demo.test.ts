import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  isTold,
  playCell,
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

describe.each(stores)('on %s', (kind) => {
  let store: Store;
  beforeAll(async () => {
    store = services.use(await startStore(kind));
  });

  const cells = scenarios.flatMap((scenario) =>
    protections
      .filter((protection) => isTold(scenario, protection, kind))
      .map((protection) => [scenario.title, protection, scenario] as const),
  );
  test.each(cells)('%s, protected by %s, ends as pinned', async (_, protection, scenario) => {
    const cell = await playCell(scenario, protection, store, nodes);
    expect(cell, JSON.stringify(cell.history, null, 1)).toMatchObject({ verdict: cell.pinned });
    const tokens = scenario.number === 10 ? ['33', '34', '35'] : ['33', '34'];
    const takesNone = protection === 'none' || cell.verdict === 'refused';
    expect(cell.tokens).toEqual(takesNone ? [] : tokens);
  });
});

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
  });

  test('tells a timeline that fits 80 columns and needs no colour', async () => {
    const { code, stdout } = await demo('--only', '3', '--store', 'postgres');
    expect(code).toBe(0);
    expect(stdout).not.toContain('\u001b');
    for (const line of stdout.split('\n')) expect([...line].length, line).toBeLessThanOrEqual(80);
    expect(stdout).toContain('client 1          client 2          lock nodes        storage');
    expect(stdout).toMatch(/write REFUSED, 34 was seen/);
    expect(stdout).toContain('5 of 5 verdicts are as expected.');
  });

  test.each([
    [['--only', '4'], '--only takes the numbers 1, 2, 3, 10, 11, 12: 4'],
    [['--store', 'mysql'], '--store must be one of s3, postgres: mysql'],
    [['--colour'], "Unknown option '--colour'"],
  ])('does not understand %s, says why, and exits with 2', async (args, message) => {
    const { code, stderr } = await demo(...args);
    expect(stderr).toContain(message);
    expect(code).toBe(2);
  });
});
