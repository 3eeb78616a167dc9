import type { Computer } from '../../../../test/simulation/computer.ts';
import type { Event, Lines, Operation, Phase } from '../../../demo/src/history.ts';
import { isFenced, type Protection } from '../../../demo/src/job.ts';
import { summarize } from '../../../demo/src/locks/lock.ts';
import { resolveOutcome } from '../../../fenced-store/src/core/resolve.ts';
import type { Lease } from '../../../lock/src/lease/lease.ts';
import type { Redlock } from '../../../lock/src/redlock/redlock.ts';
import { sleep } from '../../../lock/src/runtime/runtime.ts';
import type { DocumentStore, Snapshot, Write, WriteReply } from './document-store.ts';
import { type Link, ReplyLostError } from './link.ts';

const RETRY_MS = 250;
const RESOURCE = 'document';

type Facts = Partial<Omit<Event, 'atMs' | 'actor' | 'operation' | 'phase'>>;

/** One client's program and everything around it. */
export interface Worker {
  /** The line that it adds to the document. */
  readonly line: string;
  readonly protection: Protection;
  readonly ttlMs: number;
  /** Milliseconds for which it asks for the lock. */
  readonly waitMs: number;
  readonly computer: Computer;
  readonly redlock: Redlock;
  readonly link: Link;
  readonly store: DocumentStore;
  report(operation: Operation, phase: Phase, facts?: Facts): void;
  beforeAcquire(): Promise<void>;
  /** After the last check of the lease. */
  beforeWrite(): Promise<void>;
}

/** The program has given up, and has reported why. */
class Reported extends Error {}

/**
 * The program of `packages/demo/src/worker.ts`, in the simulated world. It acquires the lock, reads
 * the document, adds a line, writes it and releases the lock. It knows nothing of faults.
 */
export async function work(worker: Worker): Promise<void> {
  try {
    if (worker.protection === 'none') return await update(worker, null);
    if (isFenced(worker.protection) && worker.protection !== 'metadata') await probe(worker);
    const lease = await acquire(worker);
    try {
      await update(worker, lease);
    } finally {
      worker.report('release', 'invoke');
      await lease.release();
      worker.report('release', 'ok');
    }
  } catch (error) {
    if (!(error instanceof Reported)) throw error;
  }
}

/**
 * Tests the storage, as `FencedS3` does before its first write. The run shows the test only if the
 * storage ignores conditions.
 */
async function probe({ link, store, report }: Worker): Promise<void> {
  if (store.enforcesConditions) return;
  report('probe', 'invoke');
  await link.request('probe', () => {
    return { value: null, label: 'ignores the condition', tone: 'bad' };
  });
  report('probe', 'refused');
  throw new Reported();
}

async function acquire({ computer, redlock, ...worker }: Worker): Promise<Lease> {
  await worker.beforeAcquire();
  const startedMs = computer.runtime.nowMs();
  for (;;) {
    worker.report('acquire', 'invoke');
    const attempt = await redlock.tryAcquire(RESOURCE, { ttlMs: worker.ttlMs });
    if (attempt.ok) {
      const { lease } = attempt;
      worker.report('acquire', 'ok', { token: `${lease.token}`, validMs: lease.remainingMs() });
      return lease;
    }
    worker.report('acquire', 'refused', { reason: summarize(attempt.nodes) });
    if (computer.runtime.nowMs() - startedMs >= worker.waitMs) throw new Reported();
    await sleep(computer.runtime, RETRY_MS);
  }
}

async function update(worker: Worker, lease: Lease | null): Promise<void> {
  const { protection, report } = worker;
  const token = lease && isFenced(protection) ? lease.token : null;
  if (protection === 'claim' && token !== null) await claim(worker, token);
  for (;;) {
    const snapshot = await read(worker);
    const lines = edit(worker, snapshot.lines, lease);
    await worker.beforeWrite();
    if (protection === 'metadata' && token !== null && token < (snapshot.base?.token ?? 0n)) {
      report('write', 'refused', { highest: `${snapshot.base?.token}` });
      throw new Reported();
    }
    const reply = await write(worker, {
      lines,
      token,
      writeId: worker.computer.runtime.uniqueId(),
      ...(protection === 'token+cas' && { upon: snapshot }),
      ...(protection === 'metadata' && { upon: snapshot, byETag: true }),
    });
    if (reply.outcome === 'applied') return report('write', 'ok');
    if (reply.outcome === 'stale') {
      report('write', 'refused', { highest: `${reply.highest}` });
      throw new Reported();
    }
    if (protection === 'metadata') {
      // A copy of the same write, which the network delivered before, may have changed the ETag.
      report('write', 'unknown', { reason: reply.comparison });
      throw new Reported();
    }
  }
}

/** Adds the line, and checks the lease a last time before the write. */
function edit({ line, report }: Worker, current: Lines, lease: Lease | null): Lines {
  const lines = current.includes(line) ? current : [...current, line];
  const validMs = lease?.remainingMs();
  if (validMs === 0) {
    report('check', 'failed', { reason: 'the lease is over, so nothing was written' });
    throw new Reported();
  }
  report('check', 'ok', { lines, ...(validMs !== undefined && { validMs }) });
  return lines;
}

async function claim({ link, store, computer, report }: Worker, token: bigint): Promise<void> {
  report('claim', 'invoke');
  const writeId = computer.runtime.uniqueId();
  const send = () => link.request(`claim ${token}`, () => shown(store.claim(token, writeId)));
  const reply = await repeated(send);
  if (reply.outcome === 'applied') return report('claim', 'ok', { token: `${token}` });
  report('claim', 'refused', { highest: `${reply.highest}` });
  throw new Reported();
}

async function read({ link, store, report }: Worker): Promise<Snapshot> {
  report('read', 'invoke');
  const snapshot = await ask(link, store);
  report('read', 'ok', { lines: snapshot.lines });
  return snapshot;
}

function ask(link: Link, store: DocumentStore): Promise<Snapshot> {
  const send = () =>
    link.request('read', () => {
      const value = store.read();
      return { value, label: listed(value.lines), tone: 'plain' };
    });
  return repeated(send);
}

/** Sends a request again if its reply was lost, because it changes nothing the second time. */
async function repeated<Value>(send: () => Promise<Value>): Promise<Value> {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof ReplyLostError)) throw error;
    }
  }
}

/** Sends the write. If the reply is lost, reads back, as the stores of `@fenced/store` do. */
async function write(worker: Worker, request: Write): Promise<WriteReply> {
  const { link, store, report } = worker;
  const label = request.token === null ? 'write' : `write ${request.token}`;
  report('write', 'invoke');
  try {
    return await link.request(label, () => shown(store.write(request)));
  } catch (error) {
    if (!(error instanceof ReplyLostError)) throw error;
    const { token, writeId, upon } = request;
    const seen = (await ask(link, store)).base;
    const base = upon?.base ?? null;
    const outcome =
      token === null ? null : resolveOutcome({ token, writeId, base }, seen, 'doubtful');
    if (outcome === 'applied' || outcome === 'replaced')
      return { outcome: 'applied', comparison: 'read back: applied' };
    report('write', 'unknown', { reason: 'the reply was lost' });
    throw new Reported();
  }
}

function shown(value: WriteReply) {
  const { outcome, comparison } = value;
  return { value, label: comparison, tone: outcome === 'applied' ? 'good' : 'bad' } as const;
}

function listed(lines: Lines): string {
  return `[${lines.map((line) => line.replace('client ', '')).join(', ')}]`;
}
