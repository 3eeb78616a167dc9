/**
 * A client, as in Kleppmann's article. It acquires the lock, reads the document, changes it, writes
 * it back and releases the lock, as any program would. It does not know the story: faults come from
 * outside.
 */
import { setTimeout } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { FencedDocument } from './documents/document.js';
import { openFenced, openPlain, openWithMetadata } from './documents/open.js';
import type { Lines } from './history.js';
import type { Job } from './job.js';
import { Reported, report, step } from './journal.js';
import type { HeldLock } from './locks/lock.js';
import { openLock } from './locks/open.js';
import { connected } from './locks/other.js';

const RECONNECT_MS = 20;
const RETRY_MS = 50;

const job: Job = JSON.parse(process.argv[2] ?? '');
const nodes = job.lock.nodes.map(({ name, url }) => {
  const client = new Redis(url, {
    lazyConnect: true,
    maxRetriesPerRequest: 1,
    retryStrategy: () => RECONNECT_MS,
    // At the end, ioredis waits this long even for connections that are already closed.
    disconnectTimeout: RECONNECT_MS,
  });
  // Errors of the connection are ignored, because each request reports its own failure.
  client.on('error', () => {});
  return { name, client };
});
const lock = openLock(job.lock, nodes);

/** Connects, as programs do at start, and retries until it has the lock or the time is over. */
async function acquire(): Promise<HeldLock> {
  await Promise.allSettled(nodes.map(({ client }) => client.connect()));
  const startedMs = performance.now();
  for (;;) {
    report('acquire', 'invoke');
    const attempt = await lock.tryAcquire(job.resource, job.ttlMs);
    if (attempt.ok) return reported(attempt.lease);
    report('acquire', 'refused', { reason: attempt.why });
    if (performance.now() - startedMs > job.waitMs) throw new Reported();
    await setTimeout(RETRY_MS);
  }
}

/** Reports the grant and the release of a lease. */
function reported(lease: HeldLock): HeldLock {
  const { token } = lease;
  const facts = { validMs: lease.remainingMs(), ...(token !== null && { token: `${token}` }) };
  report('acquire', 'ok', facts);
  return {
    token,
    remainingMs: () => lease.remainingMs(),
    async [Symbol.asyncDispose]() {
      report('release', 'invoke');
      await lease[Symbol.asyncDispose]();
      report('release', 'ok');
    },
  };
}

function tokenOf({ token }: HeldLock): bigint {
  if (token === null) throw new Error(`the lock ${job.lock.kind} issues no tokens`);
  return token;
}

async function open(): Promise<FencedDocument> {
  const document = await openFenced(job.storage);
  await step('probe', () => document.prepare());
  return document;
}

/** Adds this client's line, and checks the lease a last time before the write. */
function edit(current: Lines, lease?: HeldLock): Lines {
  const edited = current.includes(job.line) ? current : [...current, job.line];
  const validMs = lease?.remainingMs();
  if (validMs === 0) {
    report('check', 'failed', { reason: 'the lease is over, so nothing was written' });
    throw new Reported();
  }
  report('check', 'ok', { lines: edited, ...(validMs !== undefined && { validMs }) });
  if (job.workMs !== undefined) compute(job.workMs);
  return edited;
}

/** Blocks the process for `ms`, as a computation does. */
function compute(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

async function withoutLock(): Promise<void> {
  await using document = await openPlain(job.storage);
  const edited = edit(await read(document));
  await step('write', () => document.write(edited));
}

async function withLock(): Promise<void> {
  await using document = await openPlain(job.storage);
  await using lease = await acquire();
  const edited = edit(await read(document), lease);
  await step('write', () => document.write(edited));
}

async function withTokenInMetadata(): Promise<void> {
  await using document = await openWithMetadata(job.storage);
  await using lease = await acquire();
  const edited = edit(await read(document), lease);
  await step('write', () => document.write(edited, tokenOf(lease)));
}

async function withToken(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  const edited = edit(await read(document), lease);
  await step('write', () => document.put(edited, tokenOf(lease)));
}

async function withClaim(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  const token = tokenOf(lease);
  await step(
    'claim',
    () => document.claim(token),
    () => ({ token: token.toString() }),
  );
  const edited = edit(await read(document), lease);
  await step('write', () => document.put(edited, token));
}

async function withTokenAndCompareAndSet(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  await step('write', () =>
    document.update(tokenOf(lease), (current) => {
      report('read', 'ok', { lines: current });
      return edit(current, lease);
    }),
  );
}

function read(document: { read(): Promise<Lines> }): Promise<Lines> {
  return step(
    'read',
    () => document.read(),
    (lines) => ({ lines }),
  );
}

const work = {
  none: withoutLock,
  lock: withLock,
  metadata: withTokenInMetadata,
  token: withToken,
  'token+cas': withTokenAndCompareAndSet,
  claim: withClaim,
};

try {
  await work[job.protection]();
} catch (error) {
  if (!(error instanceof Reported)) throw error;
} finally {
  for (const { client } of nodes) client.disconnect();
  await connected.disposeAsync();
}
