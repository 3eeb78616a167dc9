import { readdirSync, readFileSync } from 'node:fs';

/**
 * Signals all processes of a group. Does nothing if the group has ended, or belongs to another
 * user.
 */
export function signalGroup(id: number, signal: NodeJS.Signals): void {
  send(id, signal);
}

/** Returns false once every process of the group has ended. */
export function isGroupAlive(id: number): boolean {
  if (!send(id, 0)) return false;
  // Signals also reach zombies: processes that have ended, and whose parent has not asked for their
  // status yet.
  return process.platform !== 'linux' || hasLiveMember(id);
}

/** @returns true if there is such a group */
function send(id: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-id, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

function hasLiveMember(id: number): boolean {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.some((pid) => {
    const [state = '', , group] = statOf(pid);
    return Number(group) === id && !['Z', 'X'].includes(state);
  });
}

/** State, parent, process group and so on of a process; nothing if it has ended. */
function statOf(pid: string): readonly string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program may hold spaces and parentheses.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}
