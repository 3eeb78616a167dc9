import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Protection } from '../../packages/demo/src/job.ts';
import { rowsOf } from '../../packages/page/src/view/rows.ts';
import { runSandbox } from '../../packages/page/src/world/sandbox.ts';
import {
  faultKinds,
  nodeFaults,
  type SandboxFault,
} from '../../packages/page/src/world/sandbox-fault.ts';
import { sandboxFault } from './harness/sandbox-faults.ts';

const RUNS = Number(process.env.FENCED_RUNS ?? 60);

function run(protection: Protection, faults: readonly SandboxFault[], seed = 1) {
  return runSandbox({ seed, protection, votesAtOnce: false, faults });
}

function faultsOf(kinds: readonly SandboxFault['kind'][]) {
  const short = sandboxFault(kinds, 3_000).map((fault) => ({ ...fault, ms: fault.ms % 6_000 }));
  return fc.array(short, { maxLength: 6 });
}

const TIMEOUT = { timeout: 30_000 + RUNS * 100 };

test('no combination of faults ends a run without a verdict', TIMEOUT, async () => {
  await fc.assert(
    fc.asyncProperty(faultsOf(faultKinds), fc.nat(1_000), async (faults, seed) => {
      expect((await run('lock', faults, seed)).verdict.reason).not.toBe('');
    }),
    { numRuns: RUNS },
  );
});

test.each(['token+cas', 'claim'] as const)(
  'under %s, no fault loses an update',
  TIMEOUT,
  async (way) => {
    const kinds = faultKinds.filter((kind) => !nodeFaults.has(kind));
    await fc.assert(
      fc.asyncProperty(faultsOf(kinds), fc.nat(1_000), async (faults, seed) => {
        const { verdict, reason } = (await run(way, faults, seed)).verdict;
        expect(['safe', 'unknown'], reason).toContain(verdict);
      }),
      { numRuns: RUNS },
    );
  },
);

test('under metadata, a write is not called refused if its copy was applied before', async () => {
  const { verdict, reason } = (
    await run('metadata', [
      { kind: 'delay', client: 1, node: 'a', atMs: 925, ms: 1_500 },
      { kind: 'twice', client: 1, node: 's', atMs: 925, ms: 20 },
    ])
  ).verdict;
  expect(verdict).toBe('safe');
  expect(reason).toContain('client 1 does not know its outcome');
});

/** A fault at 700 ms: client 2 has the lock, has read the document, and works. */
const at = { client: 2, node: 's', atMs: 700, ms: 4_000 } as const;

test.each<SandboxFault>([
  { ...at, kind: 'pause', node: 'a' },
  { ...at, kind: 'delay', node: 'a' },
  { ...at, kind: 'late' },
  { ...at, kind: 'twice' },
])('an update is lost by $kind under a lock, and not under tokens', async (fault) => {
  expect((await run('lock', [fault])).verdict).toMatchObject({ verdict: 'lost' });
  const fenced = await run('token', [fault]);
  expect(fenced.verdict).toMatchObject({ verdict: 'safe' });
  const labels = fenced.messages.map(({ label }) => label);
  expect(labels).toContainEqual(expect.stringMatching(/^33 < 34: refused/));
});

test('a pause of a client is one row of the table', async () => {
  const rows = rowsOf(await run('lock', [{ ...at, kind: 'pause', node: 'a' }]));
  expect(rows.filter(({ text }) => /stopped/.test(text))).toMatchObject([{ text: 'is stopped' }]);
});

test.each<SandboxFault>([
  { ...at, kind: 'drop' },
  { ...at, kind: 'drop', isReply: true },
  { ...at, kind: 'lose', node: 'a', ms: 3_000 },
])(
  'after a lost message ($kind, $isReply), both writes have an outcome, and no update is lost',
  async (fault) => {
    const { verdict, events } = await run('token', [fault]);
    const ends = events.filter(
      ({ operation, phase }) => operation === 'write' && phase !== 'invoke',
    );
    expect(ends).toHaveLength(2);
    expect(verdict).toMatchObject({ verdict: 'safe' });
  },
);

test.each<SandboxFault>([
  { ...at, kind: 'wipe', node: 'a', ms: 0 },
  { ...at, kind: 'rollback', node: 'a' },
  { ...at, kind: 'failover', node: 'a' },
  { ...at, kind: 'jump', node: 'a', ms: 3_600_000 },
])('a node forgets its lease by $kind', async (fault) => {
  const leaseOf = (leases: Awaited<ReturnType<typeof run>>['leases']) =>
    leases.find(({ node, client }) => node === 'a' && client === 'client 2');
  const [without, within] = [await run('lock', []), await run('lock', [fault])];
  expect(leaseOf(without.leases)?.untilMs).toBeGreaterThan(800);
  expect(leaseOf(within.leases)?.untilMs).toBeCloseTo(700, 0);
});

test('a fault of a message hits the next message to its node: it is lost, late or repeated', async () => {
  const start = { client: 1, node: 'a', atMs: 0, ms: 300 } as const;
  for (const kind of ['drop', 'late', 'twice'] as const) {
    const { messages, faults, verdict } = await run('lock', [{ ...start, kind }]);
    expect(faults).toHaveLength(1);
    expect(verdict).toMatchObject({ verdict: 'safe' });
    const sent = messages.filter(({ from, to }) => from === 'client 1' && to === 'a');
    const travelMs = sent.map(({ sentMs, arrivedMs }) => (arrivedMs ?? Infinity) - sentMs);
    expect(travelMs.some((ms) => (kind === 'drop' ? ms === Infinity : ms > 290))).toBe(true);
  }
});
