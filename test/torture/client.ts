// A client process. It prints a line when it begins. In rounds, its threads take locks and write
// under them, until SIGTERM. With the workload `final`, it only reads every object once. Its file
// gets two lines for each operation: one before it is sent, and one after its outcome.
import { openSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaseError } from '@fenced/client';
import { LockError } from '@fenced/lock';
import { FencedStoreError, OutcomeUnknownError, StaleTokenError } from '@fenced/store';
import { Random } from '../simulation/random.ts';
import { type Held, ttlMsOf } from './held.ts';
import type { Operation, Outcome } from './history.ts';
import { type LockAddresses, OURS, openLock, SETS } from './locks.ts';
import { openStores, type Store } from './stores.ts';

export interface ClientConfig extends LockAddresses {
  readonly name: string;
  readonly seed: number;
  readonly workload: string;
  readonly subject: string;
  readonly resources: readonly string[];
  /** Number of rounds at the same time. Waiters of one process hand a lock over to each other. */
  readonly threads: number;
  /** File to which the client writes its operations. */
  readonly file: string;
  /** Monotonic time at which the run began, in digits. */
  readonly startedNs: string;
}

const STYLES = ['update', 'update', 'update', 'claim', 'claim', 'queue'];
const WAITING = ['queue', 'election'];
/** The most writes under one lease. */
const STEPS_MAX = 12;
/**
 * Relative numbers of operations on the stores. S3 has few, because they take much processor time.
 */
const SHARES: Readonly<Record<string, number>> = { s3: 1, records: 12, table: 3, naive: 1 };
/** Longest pause before a round of the workload `rare`. */
const REST_MAX_MS = 3_000;
/** Codes after which nothing was written. */
const HARMLESS: ReadonlySet<string> = new Set(['conflict', 'unavailable', 'ratchet-lost']);

const config: ClientConfig = JSON.parse(process.argv[2] ?? '');
const { name, workload, subject, resources, threads } = config;
const ttlMs = ttlMsOf(subject);
const waitMs = Math.max(2_000, 3 * ttlMs);
// A stack trace for each refusal would take much time.
Error.stackTraceLimit = 2;
const startedNs = BigInt(config.startedNs);
const file = openSync(config.file, 'a');
const random = new Random(config.seed, name);
const acquire = await openLock(subject, config, workload);
const { naive, ...fenced } = openStores(config);
const stores = Object.entries(subject === 'naive' ? { naive } : fenced).flatMap(
  ([kind, store]): [string, Store][] => Array(SHARES[kind]).fill([kind, store]),
);
let isEnding = workload === 'final';
let lines: string[] = [];
let written: Promise<void> | null = null;
let operations = 0;
let values = 0;
process.on('SIGTERM', () => {
  isEnding = true;
});

if (workload === 'final') {
  for (const resource of resources)
    for (const [kind, store] of new Map(stores)) await read(recordAs(name), kind, store, resource);
}
process.stdout.write('begins\n');
await Promise.all(Array.from({ length: threads }, (_, at) => rounds(recordAs(`${name}.${at}`))));
writeLines();
process.exit(0);

async function rounds(record: Recording): Promise<void> {
  while (!isEnding) await round(record, workload === 'mixed' ? random.pick(STYLES) : workload);
}

async function round(record: Recording, style: string): Promise<void> {
  if (style === 'rare') await sleep(random.between(0, REST_MAX_MS));
  const resource = random.pick(resources);
  if (random.chance(0.2)) await read(record, ...random.pick(stores), resource);
  // Only some subjects lock several resources at once. An election is for one resource.
  const hasSets = SETS.includes(subject) && style !== 'election';
  const others = hasSets && random.chance(0.2) ? 1 + random.below(2) : 0;
  const lock = [
    ...new Set([resource, ...Array.from({ length: others }, () => random.pick(resources))]),
  ];
  const held = await take(record, lock, WAITING.includes(style) ? waitMs : 0);
  if (held === null) return void (await sleep(random.between(5, 25)));
  for (let step = random.below(STEPS_MAX); step >= 0; step -= 1) {
    // Sometimes a holder works for longer than its lease lasts, and does not notice. The lease of a
    // leader is extended during the work, unless the work blocks the process.
    if (random.chance(0.05)) {
      const workMs = ttlMs * random.between(1, 2);
      if (style === 'election') block(workMs);
      else await sleep(workMs);
    }
    if (random.chance(0.1)) await extend(record, lock, held);
    if (random.chance(0.2)) await read(record, ...random.pick(stores), resource);
    if (!(await write(record, style, resource, held.token))) break;
  }
  // One lease in ten is not released, and ends by itself. A leader must resign.
  if (style === 'election' || random.chance(0.9))
    await record({ kind: 'release', object: objectsOf(lock) }, held.release);
}

function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Writes to one of the stores. Returns false if the write did not succeed. */
async function write(
  record: Recording,
  style: string,
  resource: string,
  token: bigint,
): Promise<boolean> {
  const [kind, store] = random.pick(stores);
  const object = { object: `${kind}/${resource}`, token: String(token) };
  if (style === 'claim' && store.claim && store.put) {
    const { claim, put } = store;
    const value = newValue();
    await record({ kind: 'claim', ...object }, () => claim(resource, token));
    return record({ kind: 'put', ...object, value }, () => put(resource, token, value));
  }
  return record({ kind: 'update', ...object }, (note) =>
    store.update(resource, token, (from) => {
      const value = newValue();
      note({ from, value });
      return value;
    }),
  );
}

function newValue(): string {
  values += 1;
  return `${name}.${values}`;
}

async function read(
  record: Recording,
  kind: string,
  store: Store,
  resource: string,
): Promise<void> {
  await record({ kind: 'read', object: `${kind}/${resource}` }, () => store.read(resource));
}

function objectsOf(lock: readonly string[]): readonly string[] {
  return lock.map((resource) => `lock/${resource}`);
}

async function take(
  record: Recording,
  lock: readonly string[],
  waitMs: number,
): Promise<Held | null> {
  let held: Held | null = null;
  await record({ kind: 'acquire', object: objectsOf(lock) }, async () => {
    held = await acquire(lock, waitMs);
    return { token: String(held.token), ...until(held) };
  });
  return held;
}

async function extend(
  record: Recording,
  lock: readonly string[],
  { extend, ...held }: Held,
): Promise<void> {
  if (!extend) return;
  const token = String(held.token);
  await record({ kind: 'extend', object: objectsOf(lock), token }, async () => {
    await extend();
    return until(held);
  });
}

/** The end of the lease. Reads the clock first: after a pause in between, the time is too early. */
function until({ remainingMs }: Held): Facts {
  const fromNs = nowNs();
  return remainingMs ? { untilNs: fromNs + Math.floor(remainingMs() * 1e6) } : {};
}

/** Fields of an operation. An operation on a set of resources has several objects. */
type Facts = Partial<Omit<Operation, 'object'>> & { readonly object?: string | readonly string[] };

/**
 * Runs one operation. Records its call, the facts that `run` notes, and its outcome. Returns true
 * if it succeeded.
 */
type Recording = (
  call: Facts,
  run: (note: (facts: Facts) => void) => Promise<unknown>,
) => Promise<boolean>;

/** @param process name in the history: that of the process, and the number of the thread */
function recordAs(process: string): Recording {
  return async (call, run) => {
    operations += 1;
    const id = operations;
    const add = (facts: Facts): void => void lines.push(JSON.stringify({ id, ...facts }));
    add({ process, callNs: nowNs(), ...call });
    await untilWritten();
    try {
      const facts = await run((noted) => {
        add(noted);
        writeLines();
      });
      add({ outcome: 'ok', ...Object(facts), returnNs: nowNs() });
      return true;
    } catch (error) {
      add({ ...outcomeOf(call, error), returnNs: nowNs() });
      return false;
    }
  };
}

/** Resolves when the lines of all threads that run in this turn of the event loop are written. */
function untilWritten(): Promise<void> {
  written ??= new Promise((resolve) => {
    setImmediate(() => {
      written = null;
      writeLines();
      resolve();
    });
  });
  return written;
}

function writeLines(): void {
  if (lines.length > 0) writeSync(file, `${lines.join('\n')}\n`);
  lines = [];
}

/** Nanoseconds since the run began. */
function nowNs(): number {
  return Number(process.hrtime.bigint() - startedNs);
}

function outcomeOf({ kind }: Facts, error: unknown): Facts & { readonly outcome: Outcome } {
  if (error instanceof StaleTokenError)
    return { outcome: 'refused', highest: String(error.highest), code: error.code };
  if (error instanceof OutcomeUnknownError) return { outcome: 'unknown', code: error.code };
  if (error instanceof FencedStoreError && HARMLESS.has(error.code))
    return { outcome: 'failed', code: error.code };
  if (error instanceof LockError || error instanceof LeaseError)
    return { outcome: 'refused', code: String(error.code) };
  // A campaign ends with a TimeoutError when its time is over.
  if (kind === 'acquire' && Object(error).name === 'TimeoutError')
    return { outcome: 'refused', code: 'TimeoutError' };
  // A read of the caller's table is a plain query, which fails with errors of `pg`.
  if (kind === 'read' && !(error instanceof FencedStoreError))
    return { outcome: 'failed', code: String(Object(error).name) };
  // Of our locks, any other error is a bug, and ends the client. Other libraries throw any errors.
  if (OURS.includes(subject)) throw error;
  const isRefused = kind === 'acquire';
  return { outcome: isRefused ? 'refused' : 'unknown', code: String(Object(error).name) };
}
