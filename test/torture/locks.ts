import { FencedGateway } from '@fenced/client';
import { type Lease, type NextSet, Redlock, type RedlockConfig } from '@fenced/lock';
import { type ElectionLock, Elector } from '@fenced/lock/election';
import { PostgresLock } from '@fenced/lock/postgres';
import { Redis } from 'ioredis';
import pg from 'pg';
import { mutants, realPatchOf } from '../simulation/mutant-list.ts';
import { runFromSources } from '../simulation/sources.ts';
import { FOREIGN_SUBJECTS, openForeign } from './foreign.ts';
import { type Acquire, TTL_MS } from './held.ts';

interface NodeAddress {
  readonly name: string;
  readonly port: number;
}

export interface LockAddresses {
  readonly nodes: readonly NodeAddress[];
  /** The key prefix of the locks, then those of the node sets to which they may move. */
  readonly keyPrefixes: readonly string[];
  readonly postgresUrl: string;
  readonly gatewayUrl?: string;
}

/** Mutants that real nodes can run. */
export const MUTANTS: readonly string[] = mutants
  .filter((mutant) => realPatchOf(mutant))
  .map(({ name }) => name);

/** `PostgresLock` and the stores, on a primary whose standby may lack the last transactions. */
export const ASYNCHRONOUS = 'postgres-async';

/** The locks that keep the rules: an unexpected error of theirs ends the run. */
export const OURS: readonly string[] = ['fenced', 'postgres', 'gateway'];

/** Whatever a client can take a lock from. All but ours are negative controls. */
export const SUBJECTS: readonly string[] = [
  ...OURS,
  'naive',
  ASYNCHRONOUS,
  ...FOREIGN_SUBJECTS,
  ...MUTANTS,
];

export function isOnPostgres(subject: string): boolean {
  return subject === 'postgres' || subject === ASYNCHRONOUS;
}

/** True if the locks are on Redis nodes that vote, and are readmitted. */
export function hasVotes(subject: string): boolean {
  return !isOnPostgres(subject) && !FOREIGN_SUBJECTS.includes(subject);
}

/** True if its clients follow moves to other node sets. */
export function isMovable(subject: string): boolean {
  return hasVotes(subject) && subject !== 'gateway';
}

/** Opens the lock service of a subject. The workload `election` campaigns for its locks. */
export async function openLock(
  subject: string,
  addresses: LockAddresses,
  workload: string,
): Promise<Acquire> {
  const ours = workload === 'election' ? elected : leased;
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
  const nodes = addresses.nodes.map(({ name, port }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return { name, client };
  });
  if (FOREIGN_SUBJECTS.includes(subject))
    return openForeign(
      subject,
      nodes.map(({ client }) => client),
    );
  const Lock = await redlockOf(subject);
  return ours(new Lock({ ...chainOf(nodes, addresses.keyPrefixes), maxTtlMs: TTL_MS }));
}

/** The nodes under the first key prefix, and under each of the others as the next set. */
export function chainOf(
  nodes: RedlockConfig['nodes'],
  keyPrefixes: readonly string[],
): Pick<RedlockConfig, 'nodes' | 'keyPrefix' | 'next'> {
  const sets = keyPrefixes.map((keyPrefix): NextSet => ({ nodes, keyPrefix }));
  return sets.reduceRight((next, set) => ({ ...set, next }));
}

/** Returns the class of this build; for a mutant, the class of its sources with the change. */
async function redlockOf(subject: string): Promise<typeof Redlock> {
  const mutant = mutants.find(({ name }) => name === subject);
  const patch = mutant && realPatchOf(mutant);
  if (!patch) return Redlock;
  runFromSources(patch);
  const source = new URL('../../packages/lock/src/redlock/redlock.ts', import.meta.url);
  return (await import(source.href)).Redlock;
}

/** A lease, as all three services return it. */
type OurLease = Pick<Lease, 'token' | 'remainingMs' | 'extend'> & { release(): Promise<unknown> };

interface OurService {
  acquire(
    resources: string | readonly string[],
    options: { readonly ttlMs: number; readonly waitMs: number; readonly signal?: AbortSignal },
  ): Promise<OurLease>;
}

function leased(service: OurService): Acquire {
  return async (resources, waitMs) => {
    const lease = await service.acquire(resources, { ttlMs: TTL_MS, waitMs });
    return {
      token: lease.token,
      remainingMs: () => lease.remainingMs(),
      extend: () => lease.extend(TTL_MS),
      release: async () => void (await lease.release()),
    };
  };
}

/** Leadership of a resource, until it is released. */
function elected(lock: ElectionLock): Acquire {
  return async ([resource = ''], waitMs) => {
    const elector = new Elector({ lock, resource, ttlMs: TTL_MS });
    const leadership = await elector.campaign({ signal: AbortSignal.timeout(waitMs) });
    return {
      token: leadership.token,
      remainingMs: () => leadership.remainingMs(),
      release: () => elector.resign(),
    };
  };
}
