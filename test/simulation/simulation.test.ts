import { expect, test } from 'vitest';
import { type Outcome, simulate } from './world.ts';

// The worlds of a run are always the same ones, so that a failure stays; `npm run simulate` lives through others.
const FIRST_SEED = 20_251_121;
const DURATION_MS = 40_000;
const SEEDS_MIN = 200;

async function live(seed: number): Promise<{ outcome: Outcome; lines: string[] }> {
  const lines: string[] = [];
  const outcome = await simulate(seed, { trace: (line) => lines.push(line) });
  return { outcome, lines };
}

test('the same seed has the same history', async () => {
  for (let seed = 1; seed <= 10; seed += 1) {
    const first = await live(seed);
    expect(first.lines.length).toBeGreaterThan(100);
    expect(await live(seed)).toEqual(first);
  }
});

test('another seed has another history', async () => {
  expect((await live(1)).lines).not.toEqual((await live(2)).lines);
});

test(`tokens grow and everybody acquires again, whatever goes wrong, from seed ${FIRST_SEED} on`, {
  timeout: DURATION_MS + 60_000,
}, async () => {
  const endMs = performance.now() + DURATION_MS;
  const total = { seeds: 0, acquisitions: 0, admissions: 0 };
  while (performance.now() < endMs) {
    const outcome = await simulate(FIRST_SEED + total.seeds);
    const replay = `npm run simulate -- --seed ${outcome.seed} --seeds 1`;
    expect(outcome.violation, replay).toBeNull();
    total.seeds += 1;
    total.acquisitions += outcome.acquisitions;
    total.admissions += outcome.admissions;
  }
  // An exploration in which nothing happened would prove nothing.
  expect(total.seeds).toBeGreaterThan(SEEDS_MIN);
  expect(total.acquisitions).toBeGreaterThan(total.seeds);
  expect(total.admissions).toBeGreaterThan(total.seeds);
});
