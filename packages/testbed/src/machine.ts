import { execFile } from 'node:child_process';
import { cpus } from 'node:os';
import { promisify } from 'node:util';

/** The machine and the code of a recorded run. */
export interface MachineFacts {
  /** Day on which the run ended. */
  readonly date: string;
  /** Short id of the commit. It ends in `+` if files differed from the commit. */
  readonly commit: string;
  /** Names and versions of the servers, of Node, and of the processors. */
  readonly machine: Readonly<Record<string, string>>;
}

/** Returns what is known about the machine and the code. */
export async function describeMachine(
  programs: Readonly<Record<string, string>>,
): Promise<MachineFacts> {
  const all = cpus();
  const processors = `${all.length} × ${all[0]?.model.trim() ?? 'unknown'}`;
  const node = process.versions.node;
  return {
    date: new Date().toISOString().slice(0, 10),
    commit: await commitOfTree(),
    machine: { ...programs, node, system: process.platform, processors },
  };
}

async function commitOfTree(): Promise<string> {
  try {
    const git = async (...args: string[]): Promise<string> =>
      (await promisify(execFile)('git', args)).stdout.trim();
    const isClean = (await git('status', '--porcelain', '--', 'packages', 'test')) === '';
    return `${await git('rev-parse', '--short', 'HEAD')}${isClean ? '' : '+'}`;
  } catch {
    return 'unknown';
  }
}
