import { playCell, startStore, stories, type Variant, variantsOf } from '@fenced/demo';
import { expect, test, vi } from 'vitest';

// A test of the tests: if a node that lost its memory votes at once, the demo must report two
// holders.
const variant = stories.flatMap(variantsOf).find(({ story, lock, protection }: Variant) => {
  return story.number === 5 && lock === 'fenced' && protection === 'lock';
});
if (!variant) throw new Error('story 5 is not played under @fenced/lock');

test('without the recovery wait of a node that lost its memory, two clients hold the lock', async () => {
  await using store = await startStore('postgres');
  vi.stubEnv('NODE_OPTIONS', `--import=${new URL('./wait-off.mjs', import.meta.url)}`);
  expect((await playCell(variant, store, [])).verdict).toBe('two holders');
  vi.unstubAllEnvs();
  expect((await playCell(variant, store, [])).verdict).toBe('safe');
}, 60_000);
