import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

const sourceOf = (path: string): Promise<string> =>
  readFile(new URL(`../../packages/${path}`, import.meta.url), 'utf8');

test('lock and client, which do not depend on each other, count time by the same clock', async () => {
  const ours = await sourceOf('lock/src/runtime/machine-clock.ts');
  expect(await sourceOf('client/src/machine-clock.ts')).toBe(ours);
});
