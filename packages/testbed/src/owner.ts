import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from './server.js';

/** Debian's and everybody's number for the user who owns nothing. */
const NOBODY = 65_534;

/** A user who may run a server. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** Postgres and PgBouncer refuse to run as root. A bare machine has no user for them, but always one who owns nothing. */
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
