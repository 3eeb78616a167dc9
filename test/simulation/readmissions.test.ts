import { expect, test } from 'vitest';
import { explore } from './exploration.ts';
import { simulateReadmissions } from './readmission-world.ts';
import type { NodeFlaw } from './redis-process.ts';

/** Worlds that begin in the same state. One of them shows the mutant. */
const FIRST_SEED = 1_000_600;
const SEEDS = 200;
const MUTANT = 'roster ties kept by place';

/** Each step of each world, and its outcome. */
function played(flaws: ReadonlySet<NodeFlaw>, isModel: boolean): readonly string[] {
  const lines: string[] = [];
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
    const life = simulateReadmissions(seed, { flaws, isModel, trace: (line) => lines.push(line) });
    lines.push(JSON.stringify(life));
  }
  return lines;
}

test.each<{ flaws: NodeFlaw[] }>([{ flaws: [] }, { flaws: ['roster-ties-by-place'] }])(
  `with the flaws $flaws, the fast node answers as the model of Redis at each step of ${SEEDS} worlds`,
  ({ flaws }) => {
    const fast = played(new Set(flaws), false);
    expect(fast).toEqual(played(new Set(flaws), true));
    // Each kind of request is compared, and each answer that refuses one.
    for (const said of ['admitted', 'already-admitted', 'retired', 'changed', 'refused', 'held']) {
      expect(fast.filter((line) => line.includes(` = ${said} `)).length, said).toBeGreaterThan(0);
    }
    expect(fast.some((line) => /: confirm .* = granted/.test(line))).toBe(true);
  },
);

test(`${SEEDS} worlds show that the mutant "${MUTANT}" gives a token twice`, async () => {
  const { finding } = await explore({
    firstSeed: FIRST_SEED,
    count: SEEDS,
    workers: 1,
    mutant: MUTANT,
    without: [],
    moves: false,
    short: false,
    readmissions: true,
  });
  expect(finding?.violation).toContain('has the same token as');
});
