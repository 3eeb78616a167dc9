import { availableParallelism } from 'node:os';
import { expect, test } from 'vitest';
import { explore } from './exploration.ts';
import { mutants } from './mutant-list.ts';
import { type Outcome, simulate } from './world.ts';

// Each run has the same worlds, so a failure is repeatable. `npm run simulate` runs other ones.
const FIRST_SEED = 20_251_121;
const SEEDS = Number(process.env.FENCED_SEEDS ?? 240);
const REPEATED = Math.ceil(SEEDS / 60);

async function live(seed: number): Promise<{ outcome: Outcome; lines: string[] }> {
  const lines: string[] = [];
  const outcome = await simulate(seed, { trace: (line) => lines.push(line) });
  return { outcome, lines };
}

test('the same seed has the same history', async () => {
  for (let seed = 1; seed <= REPEATED; seed += 1) {
    const first = await live(seed);
    expect(first.lines.length).toBeGreaterThan(100);
    expect(await live(seed)).toEqual(first);
  }
});

test('another seed has another history', async () => {
  expect((await live(1)).lines).not.toEqual((await live(2)).lines);
});

test(`under random faults tokens grow, and every client acquires again after them, in ${SEEDS} worlds from seed ${FIRST_SEED} on`, {
  timeout: 60_000 + SEEDS * 1_000,
}, async () => {
  const { finding, seeds, acquisitions, readmissions, writeBacks, handOversBeside } = await explore(
    {
      firstSeed: FIRST_SEED,
      count: SEEDS,
      workers: availableParallelism(),
      mutant: null,
      without: null,
      moves: false,
      short: false,
      readmissions: false,
    },
  );
  expect(finding, `npm run simulate -- --seed ${finding?.seed} --seeds 1`).toBeNull();
  // An exploration in which nothing happened would prove nothing.
  expect(seeds).toBe(SEEDS);
  expect(acquisitions).toBeGreaterThan(10 * SEEDS);
  expect(readmissions).toBeGreaterThan(2 * SEEDS);
  expect(writeBacks).toBeGreaterThan(SEEDS / 2);
  expect(handOversBeside).toBeGreaterThan(0);
});

const ofOneKind = mutants.filter(({ world }) => world !== undefined);

test.each(ofOneKind)(
  'the unchanged code has no violation in the worlds that show the mutant "$name"',
  async ({ world = {} }) => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + REPEATED; seed += 1) {
      expect((await simulate(seed, world)).violation, `seed ${seed}`).toBeNull();
    }
  },
);

const soonShown = [
  'promise whatever is nominated',
  'roster not restored',
  'a lease is written back after a later grant',
];

test.each(soonShown)(
  'a few hundred worlds of the right kind show a violation by the mutant "%s"',
  {
    timeout: 60_000,
  },
  async (mutant) => {
    const { finding } = await explore({
      firstSeed: FIRST_SEED,
      count: 400,
      workers: availableParallelism(),
      mutant,
      without: [],
      moves: false,
      short: false,
      readmissions: false,
    });
    expect(finding).not.toBeNull();
  },
);

/** Number of worlds. In fewer worlds, perhaps no move is done. */
const MOVES = Math.max(20, Math.ceil(SEEDS / 10));

test(`tokens also grow while the locks move to other nodes, in ${MOVES} worlds`, {
  timeout: 60_000 + MOVES * 2_000,
}, async () => {
  const { finding, seeds, moves } = await explore({
    firstSeed: FIRST_SEED,
    count: MOVES,
    workers: availableParallelism(),
    mutant: null,
    without: null,
    moves: true,
    short: false,
    readmissions: false,
  });
  expect(finding, `npm run simulate -- --moves --seed ${finding?.seed} --seeds 1`).toBeNull();
  expect(seeds).toBe(MOVES);
  expect(moves).toBeGreaterThan(MOVES / 5);
});

/** Number of worlds that begin in the same state: `WORLDS_PER_BEGINNING`. */
const READMISSIONS = 200;

test(`tokens also grow while clients readmit nodes from different majorities, in ${READMISSIONS} worlds`, {
  timeout: 120_000,
}, async () => {
  const { finding, seeds, acquisitions, readmissions } = await explore({
    firstSeed: FIRST_SEED,
    count: READMISSIONS,
    workers: 1,
    mutant: null,
    without: null,
    moves: false,
    short: false,
    readmissions: true,
  });
  expect(finding, `npm run simulate -- --readmissions --seed ${finding?.seed}`).toBeNull();
  expect(seeds).toBe(READMISSIONS);
  expect(acquisitions).toBeGreaterThan(READMISSIONS / 10);
  expect(readmissions).toBeGreaterThan(READMISSIONS);
});
