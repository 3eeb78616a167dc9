import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtempDisposable, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  type Cell,
  isPlayedOn,
  playCell,
  protections,
  type Store,
  startLockNodes,
  startStore,
  stores,
  stories,
  variantsOf,
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

  const variants = stories
    .flatMap(variantsOf)
    .map((variant) => [variant.story.title, variant.protection, variant.lock, variant] as const);
  // Runs two variants at a time, because a story mostly waits.
  test.concurrent.each(variants)(
    '%s: the verdict of %s with the lock %s',
    async (_, _2, _3, variant) => {
      const used = opened.filter(({ kind }) => isPlayedOn(variant.story, kind));
      const cells = await Promise.all(used.map((store) => playCell(variant, store, nodes)));
      expect(cells).not.toHaveLength(0);
      for (const cell of cells) {
        expect(cell, JSON.stringify(cell.history, null, 1)).toMatchObject({ verdict: cell.pinned });
        checkTokens(cell);
      }
    },
    60_000,
  );
});

/** Stories in which an acquisition fails at first, which uses up a token. */
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
  const issued = tokens.map(BigInt);
  const [first = 0n] = issued;
  expect(first > 33n).toBe(failedBefore.includes(title));
  expect(first).toBeGreaterThanOrEqual(33n);
  expect(issued).toHaveLength(title === 'The ETag comes back' ? 3 : 2);
  for (const [at, token] of issued.slice(1).entries())
    expect(token).toBeGreaterThan(issued[at] ?? token);
}

function checkPicture(svg: string, programs: Record<string, string>, cells: Cell[]): void {
  const texts = textsIn(svg);
  const [fenced, unfenced] = ['token', 'lock'].map((used) => {
    return cells.find(({ protection }) => protection === used);
  });
  const [first = '', second = ''] = fenced?.tokens ?? [];
  const tokens = texts.filter((text) => text.startsWith('token '));
  expect(tokens).toEqual([first, second, second, first].map((token) => `token ${token}`));
  expect(texts).toContain(`${second} ≥ 0: applied`);
  expect(texts).toContain(`${first} < ${second}: refused`);
  expect(texts).toContain(`SAFE with tokens: ${fenced?.reason}`);
  expect(texts).toContain(`LOST with the lock alone: ${unfenced?.reason}`);
  expect(texts).toEqual(expect.arrayContaining(Object.values(programs)));
  expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(/:\/\/|<script|@import|href/);
  expect(Buffer.byteLength(svg)).toBeLessThan(30_000);
  const published = readFileSync(new URL('../../docs/story-1.svg', import.meta.url), 'utf8');
  expect(outline(published)).toEqual(outline(svg));
}

function textsIn(svg: string): string[] {
  const texts = [...svg.matchAll(/<text.*?<\/text>/g)];
  return texts.map(([text]) => text.replaceAll(/<[^>]*>/g, '').replaceAll('&lt;', '<'));
}

/** Removes from a picture what differs between runs: all numbers, and the names of the servers. */
function outline(svg: string): string {
  return svg.replaceAll(/y="90">[^<]*/g, '').replaceAll(/\d[\d.,]*/g, '#');
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

  test('--json prints the expected verdicts, --svg draws them, and the exit code is 0', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'fenced-demo-'));
    const file = join(folder.path, 'story-1.svg');
    const args = ['--json', '--only', '1', '--store', 'postgres', '--svg', file];
    const { code, stdout } = await demo(...args);
    const { services: programs, cells } = JSON.parse(stdout);
    expect(Object.keys(programs)).toEqual(['redis', 'postgres']);
    const played = cells.map(({ protection }: { protection: string }) => protection);
    expect(played).toEqual(protections.filter((protection) => protection !== 'metadata'));
    for (const cell of cells) {
      expect(cell).toMatchObject({ story: 1, store: 'postgres', verdict: cell.pinned });
      expect(cell.history.length).toBeGreaterThan(5);
    }
    expect(code).toBe(0);
    checkPicture(await readFile(file, 'utf8'), programs, cells);
  }, 60_000);

  test('--only prints timelines of 80 columns that need no colour', async () => {
    const { code, stdout } = await demo('--only', '3,6', '--store', 'postgres');
    expect(code).toBe(0);
    expect(stdout).not.toContain('\u001b');
    for (const line of stdout.split('\n')) expect([...line].length, line).toBeLessThanOrEqual(80);
    expect(stdout).toContain('client 1          client 2          lock nodes        storage');
    expect(stdout).toMatch(/write REFUSED .* 33 < 34: refused$/m);
    expect(stdout).toMatch(/^ {5}0 {2}holds the lock, token 33/m);
    expect(stdout).toContain('Lesson: A token on the write alone is not enough.');
    expect(stdout).toContain('Next: The jumping clock (npm run demo -- --only 4)');
    expect(stdout).toContain('7 of 7 verdicts are as expected.');
  }, 60_000);

  test('--list prints the names of the stories and starts nothing', async () => {
    const { code, stdout } = await demo('--list');
    expect(code).toBe(0);
    const names = stories.map(({ number, title }) => `${String(number).padStart(2)}  ${title}`);
    expect(stdout).toBe(`${names.join('\n')}\n`);
  });

  test.each([
    [
      ['--only', '99'],
      `--only takes the numbers ${[...new Set(stories.map(({ number }) => number))].join(', ')}: 99`,
    ],
    [['--only', '2', '--svg', 'a.svg'], '--svg draws story 1, which --only 2 leaves out'],
    [['--store', 'mysql'], '--store must be one of s3, postgres: mysql'],
    [['--only', '10', '--store', 'postgres'], '--only 10 is not played on postgres'],
    [['--pace', 'fast'], '--pace must be slow or step: fast'],
    [['--colour'], "Unknown option '--colour'"],
  ])('the arguments %s are refused with a reason and exit code 64', async (args, message) => {
    const { code, stderr } = await demo(...args);
    expect(stderr).toContain(message);
    expect(code).toBe(64);
  });
});
