import { FencedGateway } from '@fenced/client';
import { type Lease, type NextSet, Redlock, type RedlockConfig } from '@fenced/lock';
import { type ElectionLock, Elector } from '@fenced/lock/election';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { Redis } from 'ioredis';
import pg from 'pg';
import { mutantNamed, mutants, realPatchesOf } from '../simulation/mutant-list.ts';
import { runFromSources } from '../simulation/sources.ts';
import { FOREIGN_SUBJECTS, openForeign } from './foreign.ts';
import { type Acquire, TTL_MS, ttlMsOf } from './held.ts';
import { openBucket, type StoreAddresses } from './stores.ts';

export interface NodeAddress {
  readonly name: string;
  readonly port: number;
}

export interface LockAddresses extends StoreAddresses {
  readonly nodes: readonly NodeAddress[];
  /** The members of etcd or ZooKeeper, as `127.0.0.1:2379`. */
  readonly members: readonly string[];
  readonly moves: Moves;
}

/** The moves of the locks to other nodes in a run. */
export interface Moves {
  /** Number of moves that are done. */
  readonly done: number;
  /** Number of further moves that the configuration of a client names. */
  readonly ahead: number;
}

export const NODES = 3;

/** `fenceTtlMs` is short: nodes soon forget a resource that no client locks. */
const TIMES = { maxTtlMs: TTL_MS, fenceTtlMs: 3 * TTL_MS };

/** Mutants that real nodes can run. */
export const MUTANTS: readonly string[] = mutants
  .filter((mutant) => realPatchesOf(mutant).length > 0)
  .map(({ name }) => name);

/** `PostgresLock` and the stores, on a primary whose standby may lack the last transactions. */
export const ASYNCHRONOUS = 'postgres-async';

/** Our locks on other services: `EtcdLock`, `ZooKeeperLock` and `S3Lock`. */
const OTHERS: readonly string[] = ['etcd', 'zookeeper', 's3'];

/** The locks that must keep the rules. An unexpected error of theirs ends the run. */
export const OURS: readonly string[] = ['fenced', 'postgres', 'gateway', ...OTHERS];

/** The locks whose runs the report has. `fenced-groups` was removed after its last run. */
export const RECORDED_LOCKS: readonly string[] = OURS.toSpliced(1, 0, 'fenced-groups');

/** Subjects that lock sets of resources. */
export const SETS: readonly string[] = ['fenced', 'postgres', ...OTHERS];

/** A waiter of ZooKeeper that was killed delays the others by this time. */
const SESSION_MS = 1_000;
/** The time between two reads of a waiter on S3. */
const POLL_MS = 100;

/** All subjects: locks of ours, and negative controls, which should violate the rules. */
export const SUBJECTS: readonly string[] = [
  ...OURS,
  'naive',
  ASYNCHRONOUS,
  ...FOREIGN_SUBJECTS,
  ...MUTANTS,
];

function isOnPostgres(subject: string): boolean {
  return subject === 'postgres' || subject === ASYNCHRONOUS;
}

/** True if the locks are on Redis nodes. */
export function isOnRedis(subject: string): boolean {
  return !isOnPostgres(subject) && !OTHERS.includes(subject);
}

/** True if the locks are on Redis nodes that vote, and are readmitted. */
export function hasVotes(subject: string): boolean {
  return isOnRedis(subject) && !FOREIGN_SUBJECTS.includes(subject);
}

/** True if clients of the subject follow moves to other node sets. */
export function isMovable(subject: string): boolean {
  return hasVotes(subject) && subject !== 'gateway';
}

/** Opens the lock service of a subject. The workload `election` campaigns for its locks. */
export async function openLock(
  subject: string,
  addresses: LockAddresses,
  workload: string,
): Promise<Acquire> {
  const open = workload === 'election' ? elected : leased;
  const ours = (service: OurService & ElectionLock): Acquire => open(service, ttlMsOf(subject));
  if (addresses.gatewayUrl !== undefined) {
    const gateway = new FencedGateway({ url: addresses.gatewayUrl });
    return ours({
      acquire: (resources, options) => gateway.acquire([resources].flat()[0] ?? '', options),
    });
  }
  if (isOnPostgres(subject)) {
    const pool = new pg.Pool({ connectionString: addresses.postgresUrl, max: 8 });
    pool.on('error', () => undefined);
    return ours(new PostgresLock({ pool, maxTtlMs: TTL_MS }));
  }
  if (OTHERS.includes(subject)) return ours(await openOther(subject, addresses));
  const nodes = connect(addresses.nodes);
  if (FOREIGN_SUBJECTS.includes(subject))
    return openForeign(
      subject,
      nodes.map(({ client }) => client),
    );
  return ours(await openRedlock(subject, nodes, addresses.moves));
}

async function openOther(
  subject: string,
  { members, s3 }: LockAddresses,
): Promise<EtcdLock | ZooKeeperLock | S3Lock> {
  const maxTtlMs = ttlMsOf(subject);
  if (subject === 'etcd')
    return new EtcdLock({ endpoints: members.map((member) => `http://${member}`), maxTtlMs });
  if (subject === 'zookeeper')
    return new ZooKeeperLock({
      servers: members.join(','),
      sessionTimeoutMs: SESSION_MS,
      maxTtlMs,
    });
  const objects = openBucket(s3);
  // A first test of the bucket takes longer than an acquisition. If it fails, the lock repeats it.
  await objects.probe().catch(() => undefined);
  return new S3Lock({ objects, pollMs: POLL_MS, maxTtlMs });
}

export function connect(nodes: readonly NodeAddress[]): readonly { name: string; client: Redis }[] {
  return nodes.map(({ name, port }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return { name, client };
  });
}

/** Opens the locks on Redis nodes. */
export async function openRedlock(
  subject: string,
  nodes: RedlockConfig['nodes'],
  moves: Moves,
): Promise<Redlock> {
  const Locks = await classesOf(subject);
  return new Locks.Redlock({ ...chainOf(nodes, moves), ...TIMES });
}

type Classes = Pick<typeof import('@fenced/lock'), 'Redlock'>;

/** The classes of the mutant. A process runs at most one. */
let mutated: Promise<Classes> | null = null;

/** Returns the compiled class; for a mutant, that of the sources with its change. */
async function classesOf(subject: string): Promise<Classes> {
  if (!MUTANTS.includes(subject)) return { Redlock };
  mutated ??= importMutant(subject);
  return mutated;
}

async function importMutant(subject: string): Promise<Classes> {
  runFromSources(realPatchesOf(mutantNamed(subject)));
  return import(new URL('../../packages/lock/src/index.ts', import.meta.url).href);
}

/** Returns a configuration for moves: the same nodes, under another key prefix in each set. */
function chainOf(
  nodes: RedlockConfig['nodes'],
  { done, ahead }: Moves,
): Pick<RedlockConfig, 'nodes' | 'keyPrefix' | 'next'> {
  const sets = Array.from(
    { length: ahead + 1 },
    (_, at): NextSet => ({ nodes, keyPrefix: `{fenced}${done + at || ''}:` }),
  );
  return sets.reduceRight((next, set) => ({ ...set, next }));
}

/** A lease, as all lock services return it. */
type OurLease = Pick<Lease, 'token' | 'remainingMs' | 'extend'> & { release(): Promise<unknown> };

interface OurService {
  acquire(
    resources: string | readonly string[],
    options: { readonly ttlMs: number; readonly waitMs: number; readonly signal?: AbortSignal },
  ): Promise<OurLease>;
}

function leased(service: OurService, ttlMs: number): Acquire {
  return async (resources, waitMs) => {
    const lease = await service.acquire(resources, { ttlMs, waitMs });
    return {
      token: lease.token,
      remainingMs: () => lease.remainingMs(),
      extend: () => lease.extend(ttlMs),
      release: async () => void (await lease.release()),
    };
  };
}

/** Takes a lock by an election: a lease is the leadership, and its release resigns. */
function elected(lock: ElectionLock, ttlMs: number): Acquire {
  return async ([resource = ''], waitMs) => {
    const elector = new Elector({ lock, resource, ttlMs });
    const leadership = await elector.campaign({ signal: AbortSignal.timeout(waitMs) });
    return {
      token: leadership.token,
      remainingMs: () => leadership.remainingMs(),
      release: () => elector.resign(),
    };
  };
}
