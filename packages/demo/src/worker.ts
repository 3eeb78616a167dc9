/**
 * A client of the article: it takes the lock, reads the document, changes it, writes it back and releases the lock.
 *
 * It does its work as any program would and knows nothing of the story it is in. Where it is paused, and which of its
 * packets are late, is the director's business.
 */
import { type Lease, Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';
import type { FencedDocument } from './documents/document.js';
import { openFenced, openMarked, openPlain } from './documents/open.js';
import type { Lines } from './history.js';
import type { Job } from './job.js';
import { Reported, report, step } from './journal.js';

const job: Job = JSON.parse(process.argv[2] ?? '');
const nodes = job.lock.nodes.map(({ name, url }) => ({ name, client: new Redis(url) }));
const redlock = new Redlock({
  nodes,
  keyPrefix: job.lock.keyPrefix,
  firstToken: BigInt(job.lock.firstToken),
});

const acquire = () =>
  step(
    'acquire',
    () => redlock.acquire(job.resource, { ttlMs: job.ttlMs, waitMs: 30_000 }),
    (lease) => ({ token: lease.token.toString(), validMs: lease.remainingMs() }),
  );

async function open(): Promise<FencedDocument> {
  const document = await openFenced(job.storage);
  await step('probe', () => document.prepare());
  return document;
}

/** The change itself, and the last look at the lease before the result is written. */
function edit(current: Lines, lease?: Lease): Lines {
  const edited = current.includes(job.line) ? current : [...current, job.line];
  const validMs = lease?.remainingMs();
  if (validMs === 0) {
    report('check', 'failed', { reason: 'the lease is over, so nothing is written' });
    throw new Reported();
  }
  report('check', 'ok', { lines: edited, ...(validMs !== undefined && { validMs }) });
  return edited;
}

async function withoutLock(): Promise<void> {
  await using document = await openPlain(job.storage);
  const current = await read(document);
  const edited = edit(current);
  await step('write', () => document.write(edited));
}

async function withLock(): Promise<void> {
  await using document = await openPlain(job.storage);
  await using lease = await acquire();
  const current = await read(document);
  const edited = edit(current, lease);
  await step('write', () => document.write(edited));
}

async function withTokenInMetadata(): Promise<void> {
  await using document = await openMarked(job.storage);
  await using lease = await acquire();
  const current = await read(document);
  const edited = edit(current, lease);
  await step('write', () => document.write(edited, lease.token));
}

async function withToken(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  const current = await read(document);
  const edited = edit(current, lease);
  await step('write', () => document.put(edited, lease.token));
}

async function withClaim(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  const token = lease.token.toString();
  await step(
    'claim',
    () => document.claim(lease.token),
    () => ({ token }),
  );
  const current = await read(document);
  const edited = edit(current, lease);
  await step('write', () => document.put(edited, lease.token));
}

async function withTokenAndCompareAndSet(): Promise<void> {
  await using document = await open();
  await using lease = await acquire();
  await step('write', () =>
    document.update(lease.token, (current) => {
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
}
