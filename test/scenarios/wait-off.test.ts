import { type Play, playCell, playsOf, scenarios, startStore } from '@fenced/demo';
import { expect, test, vi } from 'vitest';

// A test of the tests: where a node that lost its memory is let in at once, the demo must report two holders.
const play = scenarios.flatMap(playsOf).find(({ scenario, lock, protection }: Play) => {
  return scenario.number === 5 && lock === 'fenced' && protection === 'lock';
});
if (!play) throw new Error('scenario 5 is not played under our lock');

test('without the wait of a node that lost its memory, two hold the lock', async () => {
  await using store = await startStore('postgres');
  vi.stubEnv('NODE_OPTIONS', `--import=${new URL('./wait-off.mjs', import.meta.url)}`);
  expect((await playCell(play, store, [])).verdict).toBe('two holders');
  vi.unstubAllEnvs();
  expect((await playCell(play, store, [])).verdict).toBe('safe');
}, 60_000);
