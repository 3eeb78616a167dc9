import type { Lease } from '../../packages/lock/src/lease/lease.ts';
import type { Redlock } from '../../packages/lock/src/redlock/redlock.ts';
import { sleep } from '../../packages/lock/src/runtime/runtime.ts';
import type { Computer } from './computer.ts';
import type { Acquisition } from './history.ts';
import type { Random } from './random.ts';

/** The part of the world that a client's program knows. */
export interface Surroundings {
  readonly resources: readonly string[];
  readonly maxTtlMs: number;
  readonly readsOwners: boolean;
  /** True once all faults are over. Then each acquisition must succeed within `waitMs`. */
  isCalm(): boolean;
  readonly waitMs: number;
  acquired(acquisition: Acquisition): void;
  /** @param beganMs the time at which the extension was requested */
  extended(acquisition: Acquisition, beganMs: number, endsMs: number): void;
  violated(what: string): void;
}

/**
 * The endless program of one client: takes a lock, holds it for a while, and perhaps extends it.
 * It mostly releases the lock, and sometimes lets the lease expire.
 */
export async function runProgram(
  computer: Computer,
  redlock: Redlock,
  world: Surroundings,
  random: Random,
): Promise<void> {
  const rest = (ms: number): Promise<void> => sleep(computer.runtime, ms);
  const wholeTtl = (): number => Math.floor(random.between(10, world.maxTtlMs + 1));
  for (;;) {
    await rest(world.maxTtlMs * random.pick([0, 0.02, 0.3]) * random.unit());
    const resources = world.resources.filter(() => random.chance(0.6));
    if (resources.length === 0) resources.push(random.pick(world.resources));
    const ttlMs = random.chance(0.6) ? world.maxTtlMs : wholeTtl();
    const held = await acquire(computer, redlock, { resources, ttlMs, random, world });
    if (!held) continue;
    const { lease, acquisition } = held;
    if (random.chance(0.5)) await rest(ttlMs * random.pick([0.1, 0.1, 1.2]) * random.unit());
    if (random.chance(0.2)) await keep(computer, redlock, { ...held, ttlMs, random, world });
    const remainingMs = lease.remainingMs();
    if (remainingMs > 0) acquisition.endsMs = computer.trueAfter(remainingMs);
    if (random.chance(0.8)) {
      acquisition.endsMs = Math.min(acquisition.endsMs, computer.trueMs);
      await lease.release();
    }
  }
}

interface Keeping {
  readonly lease: Lease;
  readonly acquisition: Acquisition;
  readonly ttlMs: number;
  readonly random: Random;
  readonly world: Surroundings;
}

/**
 * Extends a lease now and then, as the holder or by the owner id and the token. Another process
 * extends it so: it does not know when the lease ends.
 */
async function keep(
  computer: Computer,
  redlock: Redlock,
  { lease, acquisition, ttlMs, random, world }: Keeping,
): Promise<void> {
  const resource = [...acquisition.resources];
  acquisition.owner = lease.owner;
  const { owner, token } = lease;
  const held = random.chance(0.4) ? { resource, owner, token } : null;
  for (let left = random.pick([1, 3, 12]); left > 0 && !world.isCalm(); left -= 1) {
    const beganMs = computer.trueMs;
    try {
      if (held === null) await lease.extend(ttlMs);
      const remainingMs = held ? await redlock.extend(held, ttlMs) : lease.remainingMs();
      const endsMs = remainingMs > 0 ? computer.trueAfter(remainingMs) : 0;
      world.extended(acquisition, beganMs, endsMs);
    } catch {
      if (held === null && lease.remainingMs() === 0) return;
    }
    await sleep(computer.runtime, ttlMs * random.pick([0.2, 0.5, 0.5, 1.2]) * random.unit());
  }
}

interface Wish {
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly random: Random;
  readonly world: Surroundings;
}

async function acquire(
  computer: Computer,
  redlock: Redlock,
  wish: Wish,
): Promise<{ readonly lease: Lease; readonly acquisition: Acquisition } | null> {
  const { resources, ttlMs, random, world } = wish;
  const beganMs = computer.trueMs;
  const isCalm = world.isCalm();
  const waitMs = isCalm ? world.waitMs : Math.floor(ttlMs * random.pick([0, 0.5, 2]));
  const giveUp = new AbortController();
  if (!isCalm && random.chance(0.05)) {
    computer.runtime.after(ttlMs * random.unit(), () => giveUp.abort(new Error('given up')));
  }
  const options = { ttlMs, waitMs, signal: giveUp.signal };
  try {
    const lease = await redlock.acquire([...resources], options);
    const returnedMs = computer.trueMs;
    checkValidity(computer, lease, ttlMs, world);
    const { token } = lease;
    const remainingMs = lease.remainingMs();
    // If a pause lasted longer than the lease, the holder could never rely on it.
    const endsMs = remainingMs > 0 ? computer.trueAfter(remainingMs) : beganMs;
    const acquisition = {
      client: computer.name,
      owner: world.readsOwners ? lease.owner : '',
      resources,
      token,
      beganMs,
      returnedMs,
      endsMs,
    };
    world.acquired(acquisition);
    return { lease, acquisition };
  } catch (error) {
    if (isCalm) world.violated(`${computer.name} cannot acquire in peace: ${String(error)}`);
    return null;
  }
}

/**
 * Invariant: a lease never claims to last longer than its TTL, counted from its last request. It is
 * valid when it is returned, unless the process was paused just then.
 */
function checkValidity(computer: Computer, lease: Lease, ttlMs: number, world: Surroundings): void {
  const remainingMs = lease.remainingMs();
  const excessMs = computer.trueMs + remainingMs - (computer.lastRequestMs + ttlMs);
  const { name, wasStopped } = computer;
  if (remainingMs > 0 && excessMs > 0)
    world.violated(`${name}'s lease is said to last ${excessMs} ms too long`);
  if (remainingMs <= 0 && !wasStopped) world.violated(`${name}'s lease is over from the beginning`);
}
