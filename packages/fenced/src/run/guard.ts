/**
 * Runs a command, and stops its whole job before its lease ends.
 *
 * The guard is a process of its own, in its own session. So it acts in time even if `fenced run` is
 * stopped, is killed or hangs. `fenced run` sends it a new deadline after each renewal. If no new
 * deadline comes, the command gets SIGTERM when the grace period begins, and SIGKILL at the
 * deadline.
 *
 * The guard itself writes no output: a full pipe or a stopped terminal would block it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { startBackstop } from './backstop.js';
import { Job } from './job.js';
import { JobWatch } from './job-watch.js';
import { machineMs } from './machine-clock.js';
import type { Ended, Order, Report } from './orders.js';

/** The exit codes of a shell. */
const EXIT_NOT_FOUND = 127;
const EXIT_NOT_EXECUTABLE = 126;

type Start = Extract<Order, { kind: 'start' }>;

function start(order: Start): void {
  // The machine may have slept, or the guard may have been stopped, since the lease was taken.
  if (machineMs() >= order.deadlineMs - order.graceMs) {
    end({ code: null, signal: null, why: 'late', stuck: [] });
    return;
  }
  const endBackstop = startBackstop(order.id);
  const child = spawnCommand(order);
  if (child?.pid) guard(order, child, child.pid, endBackstop);
  else endBackstop();
}

/** @returns null if the command cannot be executed, after that was reported */
function spawnCommand({ command, env }: Start): ChildProcess | null {
  const [file = '', ...args] = command;
  const refuse = ({ code }: NodeJS.ErrnoException): void =>
    end({
      code: code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE,
      ...{ signal: null, why: 'not-executable', stuck: [] },
    });
  try {
    // `detached` begins a new session, and so a new process group.
    const child = spawn(file, args, {
      detached: true,
      stdio: 'inherit',
      env: { ...process.env, ...env },
    });
    child.once('error', (error) => child.pid === undefined && refuse(error));
    return child;
  } catch (error) {
    // Node reports some errors by an event, and throws others, such as ENOTDIR and ELOOP.
    refuse(error as NodeJS.ErrnoException);
    return null;
  }
}

function guard(limits: Start, child: ChildProcess, pid: number, endBackstop: () => void): void {
  report({ kind: 'started', pid });
  const watch = new JobWatch({
    job: new Job(limits.id, pid),
    nowMs: machineMs,
    deadlineMs: limits.deadlineMs,
    graceMs: limits.graceMs,
    onStuck: (processes) => report({ kind: 'stuck', processes }),
    onEnd: (ended) => {
      endBackstop();
      end(ended);
    },
  });
  child.once('exit', (code, signal) => {
    watch.exited({ code, signal });
    watch.check();
  });
  process.on('message', (order: Order) => {
    if (order.kind === 'signal') watch.signal(order.signal);
    if (order.kind === 'deadline') watch.setDeadline(order.deadlineMs);
    watch.check();
  });
  // The parent that renews the lease is gone, perhaps already before the command was started.
  if (process.connected) process.once('disconnect', () => watch.stop());
  else watch.stop();
  watch.start();
}

/** Reports the end, and ends the guard. */
function end(ended: Ended): void {
  const done = (): never => process.exit();
  if (process.connected) process.send?.({ kind: 'ended', ...ended }, done);
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
