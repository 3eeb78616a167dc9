import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { LeaseError } from '@fenced/client';
import { LockArgumentError, LockError } from '@fenced/lock';
import { FencedStoreError } from '@fenced/store';
import { type Command, UsageError, understood } from '../command.js';
import { redisOptions } from '../redis.js';
import { durationMs } from '../run/duration.js';
import { GuardedCommand } from '../run/guarded-command.js';
import { startUnderInit } from '../run/init.js';
import { LOCK_USAGE, lockOptions, withLock } from '../run/lock-service.js';
import { machineMs } from '../run/machine-clock.js';
import type { Ended } from '../run/orders.js';
import type { RunLease, RunLock } from '../run/run-lock.js';
import { Signals } from '../run/signals.js';

const EXIT_UNAVAILABLE = 69;
const EXIT_NO_GUARD = 71;
const EXIT_HELD = 75;
const EXIT_LEASE_LOST = 79;
const EXIT_SIGNAL = 128;

const TTL_MIN_MS = 1_000;
/** Number of extensions of a lease in one TTL. Half of them come before the grace period. */
const RENEWALS = 6;
/**
 * Milliseconds between SIGKILL and the end of the lease. They cover the steps of the guard's clock,
 * the time between its checks, and the kernel's delay.
 */
const MARGIN_MIN_MS = 100;
const MARGIN_RATIO = 0.02;
const RELEASE_MS = 3_000;
const TTL_LIMIT = '; --ttl has this limit, and on Redis --max-ttl-ms raises it for all programs';

const options = {
  ...redisOptions,
  ...lockOptions,
  lock: { type: 'string' },
  ttl: { type: 'string', default: '30s' },
  wait: { type: 'string', default: '0s' },
  grace: { type: 'string' },
} as const;

export const run: Command = {
  summary: 'runs a command under a lock, and stops it before the lock can be lost',
  usage: `fenced run --lock NAME [OPTION]… -- COMMAND [ARGUMENT]…

  --lock NAME        the resource
  --ttl TIME         the time after which the lock is free if this machine dies:
                     30s, 5m, 1h; 1s or more (30s)
  --wait TIME        the longest wait for the lock (0s: one attempt)
  --grace TIME       the time between SIGTERM and SIGKILL, at most half of --ttl
                     (a third of --ttl)
${LOCK_USAGE}

The lease is extended until the command and all processes that it has started
end. If that fails, they get SIGTERM, and SIGKILL before the lease ends.

Environment of the command:
  FENCED_TOKEN, FENCED_RESOURCE
  FENCED_DEADLINE_MS    the end of the lease in ms since 1970, unless extended
  FENCED_SIGNED_TOKEN   behind a gateway

Exit codes:
  ${EXIT_UNAVAILABLE}        the lock service did not grant the lock
  ${EXIT_NO_GUARD}        the process that guards the command does not run
  ${EXIT_HELD}        the lock is held
  ${EXIT_LEASE_LOST}        the lease was lost or about to end: the command was stopped or not
            started
  126, 127  the command cannot be run, or is not there
  128 + N   the signal N ended the command
  others    the command's own

docs/fenced-run.md has more.`,

  async run(args) {
    const settings = parse(args);
    startUnderInit();
    return withLock(settings.values, async (lock) => {
      const code = await runUnder(lock, settings);
      // Connections to servers that hang must not keep the process alive.
      setTimeout(() => process.exit(code), RELEASE_MS).unref();
      return code;
    });
  },
};

type Settings = ReturnType<typeof parse>;

async function runUnder(lock: RunLock, settings: Settings): Promise<number> {
  const { resource, ttlMs, waitMs, graceMs, command } = settings;
  using signals = new Signals();
  const ready = GuardedCommand.ready(signals.interrupted, complainOfStuck);
  const started = await ready.catch((error: Error) => error);
  if (started instanceof Error) return refusal(signals, started) ?? EXIT_NO_GUARD;
  using guarded = started;
  let lease: RunLease;
  try {
    const signal = AbortSignal.any([signals.interrupted, guarded.lost]);
    signal.throwIfAborted();
    lease = await lock.acquire(resource, { ttlMs, waitMs, signal });
  } catch (error) {
    return refusal(signals, guarded.lost.reason) ?? exitCodeOf(error);
  }
  // The lock may have been granted at the moment of the abort.
  const refused = refusal(signals, guarded.lost.reason);
  if (refused !== null) {
    await releaseInTime(lease);
    return refused;
  }
  const extending = new AbortController();
  const env = environment(resource, lease);
  const running = guarded.run({ command, env, deadlineMs: deadlineMsOf(lease, ttlMs), graceMs });
  signals.forwardTo((signal) => guarded.signal(signal));
  void extendUntil(extending.signal, lease, ttlMs, guarded);
  const ended = await running;
  extending.abort();
  // A lease whose job goes on is not released, but runs out.
  if (ended.stuck.length > 0) await sleep(lease.remainingMs());
  const isOver = lease.remainingMs() === 0;
  const released = await releaseInTime(lease);
  return report(ended, isOver || released === 'expired');
}

function releaseInTime(lease: RunLease): ReturnType<RunLease['release']> {
  const late = sleep(RELEASE_MS, 'unknown' as const, { ref: false });
  return Promise.race([lease.release(), late]);
}

/** The exit code if a signal has come, or the guard does not run; otherwise null. */
function refusal({ first }: Signals, noGuard: Error | undefined): number | null {
  if (first) return EXIT_SIGNAL + constants.signals[first];
  if (!noGuard) return null;
  const why = noGuard.message;
  complain(`the process that guards the command does not run, so nothing was started: ${why}`);
  return EXIT_NO_GUARD;
}

function complainOfStuck(processes: readonly string[]): void {
  const { pid } = process;
  complain(
    `the command has ended or was killed, but these processes cannot be ended: ${processes.join(', ')}. ` +
      `The lock is held until they end. To let it run out, use kill -9 ${pid}`,
  );
}

const REASONS = {
  deadline: 'the lease was about to end, so the command was stopped',
  late: 'the command could not be started in time before the end of its lease, and was not started',
  'guard-lost': 'the process that guards the command was killed, so the command was killed',
  'not-executable': 'the command cannot be executed',
} as const;

function report({ code, signal, why, stuck }: Ended, isLost: boolean): number {
  if (stuck.length > 0)
    complain(`these processes cannot be ended, and go on without the lock: ${stuck.join(', ')}`);
  const reason = why ? REASONS[why] : isLost && 'the lease was lost before the command ended';
  if (reason) complain(reason);
  if (reason && why !== 'not-executable') return EXIT_LEASE_LOST;
  return signal === null ? (code ?? 1) : EXIT_SIGNAL + constants.signals[signal];
}

/**
 * Extends the lease until the signal aborts. A lease that is lost ends the command at once. After a
 * failure, or without an answer, it tries twice as often: the lock may have made a new connection.
 */
async function extendUntil(
  signal: AbortSignal,
  lease: RunLease,
  ttlMs: number,
  guarded: GuardedCommand,
): Promise<void> {
  const everyMs = ttlMs / RENEWALS;
  let isFailing = false;
  const pause = (): Promise<unknown> =>
    sleep(isFailing ? everyMs / 2 : everyMs, undefined, { signal }).catch(() => {});
  const extend = async (): Promise<void> => {
    await lease.extend(ttlMs);
    if (!signal.aborted) guarded.setDeadline(deadlineMsOf(lease, ttlMs));
  };
  for (await pause(); !signal.aborted; ) {
    const turn = pause();
    const late = turn.then(() => new Error('no answer yet'));
    const extended = extend().catch((error: Error) => error);
    const failure = await Promise.race([extended, late]);
    if (signal.aborted) return;
    if (lease.remainingMs() === 0) guarded.setDeadline(deadlineMsOf(lease, ttlMs));
    if (failure && !isFailing) complain(`the lease could not be extended: ${failure.message}`);
    isFailing = failure !== undefined;
    await turn;
  }
}

/** The time by which the command must have ended, in milliseconds of `machineMs`. */
function deadlineMsOf(lease: RunLease, ttlMs: number): number {
  const marginMs = Math.max(MARGIN_MIN_MS, MARGIN_RATIO * ttlMs);
  return machineMs() + lease.remainingMs() - marginMs;
}

function environment(resource: string, lease: RunLease): Readonly<Record<string, string>> {
  const { token, signedToken } = lease;
  return {
    FENCED_TOKEN: String(token),
    FENCED_RESOURCE: resource,
    FENCED_DEADLINE_MS: String(Math.floor(Date.now() + lease.remainingMs())),
    ...(signedToken !== undefined && { FENCED_SIGNED_TOKEN: signedToken }),
  };
}

/** @throws {UsageError} if the lock service refuses the arguments */
function exitCodeOf(error: unknown): number {
  if (error instanceof LockArgumentError)
    throw new UsageError(error.message + (error.message.startsWith('ttlMs') ? TTL_LIMIT : ''));
  const isKnown = [LockError, LeaseError, FencedStoreError].some((type) => error instanceof type);
  if (!isKnown) throw error;
  const { code, message } = error as LockError | LeaseError;
  complain(message.replace('run install()', 'pass --install, or run install()'));
  return code === 'held' || code === 'timeout' ? EXIT_HELD : EXIT_UNAVAILABLE;
}

function parse(args: readonly string[]) {
  const dashes = args.indexOf('--');
  // Without --, the command's own options would be read as unknown options of `fenced run`.
  if (dashes < 0 || dashes === args.length - 1)
    throw new UsageError('the command comes after --: fenced run --lock NAME -- COMMAND');
  const command = args.slice(dashes + 1);
  const own = args.slice(0, dashes);
  const { values } = understood(() => parseArgs({ args: own, options }));
  const { lock: resource, ttl, wait, grace } = values;
  if (process.platform === 'win32') throw new UsageError('Windows has no process groups to stop');
  if (!resource) throw new UsageError('name the lock: --lock NAME');
  const ttlMs = durationMs('--ttl', ttl);
  if (ttlMs < TTL_MIN_MS) throw new UsageError(`--ttl must be 1s or more: ${ttl}`);
  const graceMs = grace === undefined ? ttlMs / 3 : durationMs('--grace', grace);
  if (2 * graceMs > ttlMs) throw new UsageError(`--grace may be half of --ttl at most: ${grace}`);
  return { values, resource, command, ttlMs, graceMs, waitMs: durationMs('--wait', wait) };
}

function complain(message: string): void {
  process.stderr.write(`fenced run: ${message}\n`);
}
