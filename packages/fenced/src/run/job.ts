import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** A process of a job that has not ended. */
export interface JobProcess {
  readonly pid: number;
  readonly name: string;
  readonly group: number;
}

/** The variable that holds the id of a job. Under a second `fenced run`, it holds both ids. */
export const JOB_VARIABLE = 'FENCED_RUN_ID';

/**
 * All processes that a command has started.
 *
 * A process group is not enough: `timeout`, `set -m` and `bash -i` put the work into groups of its
 * own. On Linux, the job is the session of the command, and all processes that have the id of the
 * job in their environment. Children inherit both. So a process leaves the job only if it
 * begins a session and also removes, or overwrites, the id in its environment. A process that
 * changes its user hides its environment, but not its session.
 *
 * Elsewhere, the job is the process group of the command.
 */
export class Job {
  /** False once the command's own process has ended: its process id may then be used anew. */
  isLed = true;
  readonly #id: string;
  readonly #leader: number | null;

  /** @param leader the command's own process; null if it is not known */
  constructor(id: string, leader: number | null) {
    this.#id = id;
    this.#leader = leader;
  }

  /**
   * Signals the process groups of these processes of the job. Skips those of another user.
   *
   * A signal to a group cannot miss a child that is just being created, but one to a process can.
   */
  signal(signal: NodeJS.Signals, processes: readonly JobProcess[]): void {
    const groups = new Set(processes.map(({ group }) => group));
    if (this.isLed && this.#leader) groups.add(this.#leader);
    for (const group of groups) sendToGroup(group, signal);
  }

  /** The processes that have not ended. */
  processes(): readonly JobProcess[] {
    const leader = this.#leader ?? 0;
    if (!hasOwnProcesses())
      return sendToGroup(leader, 0) ? [{ pid: leader, name: 'its group', group: leader }] : [];
    const found = this.#search();
    // The list of processes is no snapshot. A process that starts a child and ends during the first
    // search hides the child from it, but not from the second one.
    return found.length > 0 ? found : this.#search();
  }

  #search(): readonly JobProcess[] {
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    return pids.flatMap((pid) => {
      const found = readProcess(pid);
      if (!found || !(found.session === this.#leader || this.#isInEnvironment(pid))) return [];
      return [found];
    });
  }

  #isInEnvironment(pid: string): boolean {
    try {
      return readFileSync(`/proc/${pid}/environ`).includes(this.#id);
    } catch {
      // It has ended, or belongs to another user.
      return false;
    }
  }
}

/**
 * Returns true if `/proc` shows the process ids by which this process can send signals. In a new
 * PID namespace, `/proc` may still be that of the old one.
 */
export function hasOwnProcesses(): boolean {
  try {
    return readlinkSync('/proc/self') === String(process.pid);
  } catch {
    return false;
  }
}

/** @returns true if there is such a group */
function sendToGroup(id: number, signal: NodeJS.Signals | 0): boolean {
  // Groups 0 and 1 mean this process and every process.
  if (id <= 1) return false;
  try {
    return process.kill(-id, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** @returns null if the process has ended */
function readProcess(pid: string): (JobProcess & { readonly session: number }) | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program may hold spaces and parentheses.
    const end = stat.lastIndexOf(')');
    const fields = stat.slice(end + 2).split(' ');
    const [state, , group, session] = fields;
    const threads = Number(fields[17]);
    // A zombie has ended, and its parent has not asked for its status yet. But if only its first
    // thread has ended, the others still work.
    if (state === 'X' || (state === 'Z' && threads <= 1)) return null;
    const name = stat.slice(stat.indexOf('(') + 1, end);
    return { pid: Number(pid), name, group: Number(group), session: Number(session) };
  } catch {
    return null;
  }
}
