// A client process. It takes locks and writes under them in rounds, until SIGTERM. With the
// workload `final`, it reads every object once. It prints each operation twice: before it is sent,
// and after its outcome.
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockError } from '@fenced/lock';
import { FencedStoreError, OutcomeUnknownError, StaleTokenError } from '@fenced/store';
import { Random } from '../simulation/random.ts';
import type { Operation, Outcome } from './history.ts';
import { type Held, type NodeAddress, openLock, TTL_MS } from './locks.ts';
import { openStores, type Store, type StoreAddresses } from './stores.ts';

export interface ClientConfig extends StoreAddresses {
  readonly name: string;
  readonly seed: number;
  readonly workload: string;
  readonly subject: string;
  readonly nodes: readonly NodeAddress[];
  readonly resources: readonly string[];
}

const STYLES = ['update', 'claim', 'queue'];
const WAIT_MS = 2_000;
/** Codes after which nothing was written. */
const HARMLESS: ReadonlySet<string> = new Set(['conflict', 'unavailable', 'ratchet-lost']);

const config: ClientConfig = JSON.parse(process.argv[2] ?? '');
const { name, workload, subject, resources } = config;
const random = new Random(config.seed, name);
const acquire = openLock(subject, config.nodes);
const { naive, ...fenced } = openStores(config);
const stores = Object.entries(subject === 'naive' ? { naive } : fenced) as [string, Store][];
let isEnding = workload === 'final';
let operations = 0;
let values = 0;
process.on('SIGTERM', () => {
  isEnding = true;
});

if (workload === 'final') {
  for (const resource of resources)
    for (const [kind, store] of stores) await read(kind, store, resource);
}
while (!isEnding) await round(workload === 'mixed' ? random.pick(STYLES) : workload);
process.exit(0);

async function round(style: string): Promise<void> {
  const resource = random.pick(resources);
  const [kind, store] = random.pick(stores);
  if (random.chance(0.2)) await read(kind, store, resource);
  const held = await take(resource, style === 'queue' ? WAIT_MS : 0);
  if (held === null) return void (await sleep(random.between(5, 25)));
  // A holder that works for longer than its lease lasts, and does not notice.
  if (random.chance(0.1)) await sleep(TTL_MS * random.between(1, 2));
  if (random.chance(0.2)) await extend(resource, held);
  const object = { object: `${kind}/${resource}`, token: String(held.token) };
  if (style === 'claim' && store.claim && store.put) {
    const { claim, put } = store;
    const value = newValue();
    await record({ kind: 'claim', ...object }, () => claim(resource, held.token));
    await record({ kind: 'put', ...object, value }, () => put(resource, held.token, value));
  } else {
    await record({ kind: 'update', ...object }, (note) =>
      store.update(resource, held.token, (from) => {
        const value = newValue();
        note({ from, value });
        return value;
      }),
    );
  }
  // The others leave their lease to end by itself.
  if (random.chance(0.9))
    await record({ kind: 'release', object: `lock/${resource}` }, held.release);
}

function newValue(): string {
  values += 1;
  return `${name}.${values}`;
}

async function read(kind: string, store: Store, resource: string): Promise<void> {
  await record({ kind: 'read', object: `${kind}/${resource}` }, () => store.read(resource));
}

async function take(resource: string, waitMs: number): Promise<Held | null> {
  let held: Held | null = null;
  await record({ kind: 'acquire', object: `lock/${resource}` }, async () => {
    held = await acquire(resource, waitMs);
    return { token: String(held.token), ...until(held) };
  });
  return held;
}

async function extend(resource: string, held: Held): Promise<void> {
  const token = String(held.token);
  await record({ kind: 'extend', object: `lock/${resource}`, token }, async () => {
    await held.extend();
    return until(held);
  });
}

/** The present comes first: if the process is stopped in between, the time is too early. */
function until(held: Held): Facts {
  const nowNs = process.hrtime.bigint();
  return { untilNs: String(nowNs + BigInt(Math.floor(held.remainingMs() * 1e6))) };
}

/** Fields of an operation. Times are digits, in absolute nanoseconds. */
type Facts = { readonly [Field in keyof Operation]?: Operation[Field] | string };

/** Runs one operation, and prints its call, what it notes meanwhile, and its outcome. */
async function record(
  call: Facts,
  run: (note: (facts: Facts) => void) => Promise<unknown>,
): Promise<void> {
  operations += 1;
  const id = operations;
  const print = (facts: Facts): void => void writeSync(1, `${JSON.stringify({ id, ...facts })}\n`);
  const nowNs = (): string => String(process.hrtime.bigint());
  print({ callNs: nowNs(), ...call });
  try {
    const facts = await run(print);
    print({ outcome: 'ok', ...Object(facts), returnNs: nowNs() });
  } catch (error) {
    print({ ...outcomeOf(call, error), returnNs: nowNs() });
  }
}

function outcomeOf({ kind }: Facts, error: unknown): Facts & { readonly outcome: Outcome } {
  if (error instanceof StaleTokenError)
    return { outcome: 'refused', highest: String(error.highest), code: error.code };
  if (error instanceof OutcomeUnknownError) return { outcome: 'unknown', code: error.code };
  if (error instanceof FencedStoreError && HARMLESS.has(error.code))
    return { outcome: 'failed', code: error.code };
  if (error instanceof LockError) return { outcome: 'refused', code: error.code };
  // A read of the table has the errors of `pg`.
  if (kind === 'read' && !(error instanceof FencedStoreError))
    return { outcome: 'failed', code: String(Object(error).name) };
  // Everything else ends a client of ours. The others have errors of any kind.
  if (subject === 'fenced') throw error;
  const isRefused = kind === 'acquire';
  return { outcome: isRefused ? 'refused' : 'unknown', code: String(Object(error).name) };
}
