import type { FencedS3 } from '@fenced/store/s3';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { run, Servers, startPaused, wake } from './harness/programs.js';

const parts = new AsyncDisposableStack();
let env: Readonly<Record<string, string>>;
let documents: FencedS3;

beforeAll(async () => {
  const servers = parts.use(await Servers.start());
  env = servers.env;
  documents = parts.use(servers.documents()).store;
});
afterAll(() => parts.disposeAsync());

const stored = async (key: string): Promise<unknown> => {
  const current = await documents.get(key);
  return current && JSON.parse(new TextDecoder().decode(current.body));
};

test('nightly-job: a machine that was paused is refused, and the day is there once', async () => {
  const job = 'nightly-job/main.ts';
  const night = (day: string) => run(job, { args: [day], env });
  expect(await Promise.all([night('2026-11-23'), night('2026-11-23')])).toEqual(
    expect.arrayContaining([['2026-11-23 is written'], ['2026-11-23 was done before']]),
  );
  const stopAt = 'return JSON.stringify(days)';
  await using late = await startPaused(job, { args: ['2026-11-24'], env, stopAt });
  expect(await night('2026-11-24')).toEqual(['2026-11-24 is written']);
  const token = (await documents.stat('sales.json'))?.token;
  expect(await wake(late)).toEqual([
    expect.stringMatching(RegExp(`^2026-11-24 is refused: token \\d+ is lower than ${token}$`)),
  ]);
  expect(await stored('sales.json')).toEqual({ '2026-11-23': 1_000, '2026-11-24': 1_000 });
});

test('read-modify-write: of buyers at the same time, and one that is paused, none gets the same item', async () => {
  const shop = 'read-modify-write/main.ts';
  const buy = (buyer: string) => run(shop, { args: ['chair', buyer], env });
  await Promise.all(['ann', 'bob', 'cat'].map(buy));
  const stopAt = 'await stock.put(';
  await using late = await startPaused(shop, { args: ['chair', 'dan'], env, stopAt });
  // Eve is held before her write, too. Her claim alone must be enough to refuse Dan.
  await using next = await startPaused(shop, { args: ['chair', 'eve'], env, stopAt });
  expect(await wake(late)).toEqual([
    'dan pays for chair 3',
    'dan is refused: a later holder has claimed the stock',
  ]);
  expect(await wake(next)).toEqual(['eve pays for chair 3', 'eve has chair 3']);
  const sold = (await stored('stock/chair')) as string[];
  expect(sold.toSorted()).toEqual(['ann', 'bob', 'cat', 'eve']);
});
