import { beforeAll, describe, expect, test } from 'vitest';
import { Random } from '../simulation/random.ts';
import { toEdn } from './edn.ts';
import { fromJsonLines, toJsonLines } from './json-lines.ts';
import { judge } from './judge.ts';
import { PLANTS, plant } from './plant.ts';
import { type Run, torture } from './run.ts';
import { verdictOf } from './verdict.ts';

const SECONDS = 10;
const CONTROL_SECONDS = 6;
/**
 * With this seed, the first fault wipes the node whose counter issues the foreign lock's tokens.
 */
const FIXED_SEED = 30;
const PLANTED = 20;
/** Long, because each failover copies a whole Postgres, which takes seconds on a busy machine. */
const FAILOVER_LIMIT_MS = 120_000;
/** Long, because etcd, ZooKeeper and S3 take many seconds to start on a busy machine. */
const SERVERS_LIMIT_MS = 120_000;
const randomSeed = Number(process.env.FENCED_SEED ?? Date.now());

describe.each([
  ['a fixed seed', FIXED_SEED],
  ['a random seed', randomSeed],
])('%s: %i', (_, seed) => {
  let run: Run;
  beforeAll(async () => {
    run = await torture({ seed, seconds: SECONDS });
  });

  test('tokens grow and stores are linearizable while clients and servers fail', () => {
    const verdict = verdictOf(run);
    expect(verdict).toMatchObject({ verdict: 'ok', violations: [], missing: [] });
  });

  test('the verdict on the same history without faults is `unknown`, not `ok`', () => {
    const { verdict, missing } = verdictOf({ ...run, faults: [] });
    expect({ verdict, missing }).toEqual({ verdict: 'unknown', missing: ['no fault took effect'] });
  });

  test('a history that is written to a file is read back unchanged', () => {
    expect(fromJsonLines(toJsonLines(run.history))).toEqual(run.history);
    expect(toEdn(run.history).split('\n')).toHaveLength(2 * run.history.length + 1);
  });

  test.each(Object.keys(PLANTS))('the judge finds a planted violation: %s', (kind) => {
    const random = new Random(seed, kind);
    for (let at = 0; at < PLANTED; at += 1) {
      const planted = plant(run.history, kind, random);
      expect(planted && judge(planted)).toHaveLength(1);
    }
  });
});

test('tokens grow while the locks move to another node set', async () => {
  const faults = ['node-move-resumed', 'client-kill'];
  // A move carries held leases with their tokens. The test concerns tokens of free resources, so
  // most resources must be free during a move.
  const rare = { workload: 'rare', threads: 12 } as const;
  const options = { ...rare, seed: FIXED_SEED, seconds: CONTROL_SECONDS, faults };
  const verdict = verdictOf(await torture({ ...options, subject: 'fenced' }));
  expect(verdict.violations).toEqual([]);
  expect(verdict.faults['node-move-resumed']).toBeGreaterThan(0);
});

test.each([
  ['etcd', ['member-kill', 'partition']],
  ['zookeeper', ['member-kill', 'partition']],
  ['s3', ['client-kill', 'partition']],
])(
  'tokens grow, and one client at a time holds a lock on %s, under %j',
  async (subject, faults) => {
    const options = { seed: FIXED_SEED, seconds: SECONDS, faults };
    const { violations, exclusion } = verdictOf(await torture({ ...options, subject }));
    // On a busy machine, perhaps nobody tries to get a held lock. Then the verdict is `unknown`.
    expect({ violations, overlaps: exclusion?.overlaps }).toEqual({ violations: [], overlaps: [] });
    expect(exclusion?.holds).toBeGreaterThan(0);
  },
  SERVERS_LIMIT_MS,
);

test('a lock that the first waiter takes from its holder is convicted of two holders', async () => {
  const options = { seed: FIXED_SEED, seconds: CONTROL_SECONDS, faults: ['client-clock'] };
  const subject = 'the first waiter takes a held lock';
  const run = await torture({ ...options, subject, workload: 'queue' });
  expect(verdictOf(run)).toMatchObject({ violations: [], exclusion: { verdict: 'violated' } });
});

test('clients whose writes nobody checks are convicted', async () => {
  const options = { seed: FIXED_SEED, seconds: CONTROL_SECONDS, faults: ['client-stop'] };
  const run = await torture({ ...options, subject: 'naive' });
  expect(verdictOf(run)).toMatchObject({ verdict: 'violated' });
});

test(
  'after a failover to a Postgres that lags, stores have lost writes, and tokens still grow',
  async () => {
    const options = { seed: FIXED_SEED, seconds: CONTROL_SECONDS, faults: ['postgres-failover'] };
    const { verdict, violations } = verdictOf(
      await torture({ ...options, subject: 'postgres-async' }),
    );
    expect(verdict).toBe('violated');
    expect(violations.filter(({ object }) => !/^(?:records|table)/.test(object))).toEqual([]);
  },
  FAILOVER_LIMIT_MS,
);

test('a foreign lock with a counter on one node is convicted after a wipe', async () => {
  const options = { seed: FIXED_SEED, seconds: CONTROL_SECONDS, faults: ['node-wipe'] };
  const run = await torture({ ...options, subject: 'redlock5+incr' });
  expect(run.faults).toContainEqual(expect.objectContaining({ target: 'n0' }));
  expect(verdictOf(run).violations).toContainEqual(
    expect.objectContaining({ object: expect.stringMatching('^lock/') }),
  );
});
