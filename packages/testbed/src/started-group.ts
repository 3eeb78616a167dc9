import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { guardGroup, signalGroup } from './guardian.js';
import { parentIn, processState } from './process.js';

const POLL_MS = 1;

/** A process group that a worker has started. It ends with this process, as the worker does. */
export interface StartedGroup {
  /** Id of the group, and of the process that leads it. */
  readonly pid: number;
  /** Stops it with SIGSTOP. Resolves when its leader is stopped. */
  pause(): Promise<void>;
  /** Continues it with SIGCONT. */
  wake(): void;
}

/** @param parent process that has started exactly one process, with a group of its own */
export async function groupStartedBy(parent: number): Promise<StartedGroup> {
  const [pid, ...more] = await childrenOf(parent);
  if (pid === undefined || more.length > 0)
    throw new Error(`expected one child process of ${parent}: ${[pid, ...more]}`);
  return startedGroup(pid);
}

/** @param pid process that leads a group of its own */
export function startedGroup(pid: number): StartedGroup {
  guardGroup(pid);
  return {
    pid,
    async pause() {
      signalGroup(pid, 'SIGSTOP');
      while ((await processState(pid)) !== 'T') await setTimeout(POLL_MS);
    },
    wake: () => signalGroup(pid, 'SIGCONT'),
  };
}

/** Returns the ids of child processes. Minimal Debian has no `ps`, and macOS has no `/proc`. */
async function childrenOf(parent: number): Promise<number[]> {
  if (process.platform === 'linux') {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const parents = await Promise.all(
      pids.map((pid) => readFile(`/proc/${pid}/stat`, 'utf8').then(parentIn, () => null)),
    );
    return pids.filter((_, at) => parents[at] === parent).map(Number);
  }
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'pid=,ppid=']);
  const rows = stdout.split('\n').map((line) => line.trim().split(/\s+/).map(Number));
  return rows.flatMap(([pid = 0, ppid]) => (ppid === parent ? [pid] : []));
}
