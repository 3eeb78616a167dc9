import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from './server.js';

/** The usual number of the user `nobody`. */
const NOBODY = 65_534;

/** A user that runs a server. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/**
 * Returns the user `nobody` if this process runs as root, because Postgres and PgBouncer refuse to
 * run as root. Undefined means this process's own user.
 */
export async function serviceOwner(): Promise<Owner | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  const [, , uid, gid] = users.find(([name]) => name === 'nobody') ?? [];
  return { uid: Number(uid ?? NOBODY), gid: Number(gid ?? NOBODY) };
}

export async function giveTo(owner: Owner | undefined, folder: string): Promise<void> {
  if (owner === undefined) return;
  const args = ['-R', `${owner.uid}:${owner.gid}`, folder];
  await run({ command: 'chown', args, logPath: join(folder, 'chown.log') });
}
