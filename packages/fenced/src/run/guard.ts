/**
 * Runs a command, and stops its whole process group before its lease ends.
 *
 * The guard is a process of its own, in its own session. So it acts in time even if `fenced run` is
 * stopped, is killed or hangs. `fenced run` sends it a new deadline after each renewal. If no new
 * deadline comes, the command gets SIGTERM when the grace period begins, and SIGKILL at the
 * deadline.
 *
 * The guard itself writes no output: a full pipe or a stopped terminal would block it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { machineMs } from './machine-clock.js';
import type { Order, Report } from './orders.js';
import { isGroupAlive, signalGroup } from './process-group.js';

/** Milliseconds between two checks of the clock. */
const CHECK_EVERY_MS = 25;
/**
 * Milliseconds in which processes that outlive the command may end by themselves. An example is a
 * `tee` of its output.
 */
const LEFTOVER_MS = 1_000;
/** The exit codes of a shell. */
const EXIT_NOT_FOUND = 127;
const EXIT_NOT_EXECUTABLE = 126;

let deadlineMs = Number.POSITIVE_INFINITY;
let graceMs = 0;
/** The time of SIGTERM; null before. */
let stoppedMs: number | null = null;
let isStopped = false;
let exit: { readonly code: number | null; readonly signal: NodeJS.Signals | null } | null = null;
let exitedMs = 0;
let isReported = false;

function start({ command, env, ...limits }: Extract<Order, { kind: 'start' }>): void {
  ({ deadlineMs, graceMs } = limits);
  const [file = '', ...args] = command;
  // `detached` begins a new session, and so a new process group.
  const child = spawn(file, args, {
    detached: true,
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  child.once('error', ({ code }: NodeJS.ErrnoException) => {
    if (child.pid === undefined)
      end({ code: code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, signal: null });
  });
  if (child.pid !== undefined) guard(child, child.pid);
}

function guard(child: ChildProcess, pid: number): void {
  report({ kind: 'started', pid });
  child.once('exit', (code, signal) => {
    exit = { code, signal };
    exitedMs = machineMs();
    check(pid);
  });
  process.on('message', (order: Order) => {
    if (order.kind === 'signal') signalGroup(pid, order.signal);
    if (order.kind === 'deadline') deadlineMs = order.deadlineMs;
    check(pid);
  });
  // The parent that renews the lease is gone.
  process.on('disconnect', () => stop(pid));
  setInterval(check, CHECK_EVERY_MS, pid);
}

function check(pid: number): void {
  const nowMs = machineMs();
  if (exit && !isGroupAlive(pid)) end(exit);
  if (nowMs >= deadlineMs - graceMs && stoppedMs === null) {
    isStopped = true;
    stop(pid);
  }
  if (exit && nowMs >= exitedMs + LEFTOVER_MS) stop(pid);
  if (nowMs >= deadlineMs || (stoppedMs !== null && nowMs >= stoppedMs + graceMs))
    signalGroup(pid, 'SIGKILL');
}

function stop(pid: number): void {
  if (stoppedMs !== null) return;
  stoppedMs = machineMs();
  signalGroup(pid, 'SIGTERM');
}

/** Reports the end, once, and ends the guard. */
function end(ended: NonNullable<typeof exit>): void {
  if (isReported) return;
  isReported = true;
  const done = (): never => process.exit();
  if (process.connected) process.send?.({ kind: 'ended', ...ended, isStopped }, done);
  else done();
}

function report(message: Report): void {
  // Errors are ignored: if the parent is dead, the `disconnect` event reports that.
  process.send?.(message, () => {});
}

// A service manager that ends all processes of a service must not end the guard before the command.
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) process.on(name, () => {});
process.once('message', start);
report({ kind: 'ready' });
