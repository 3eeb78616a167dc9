import { execFile } from 'node:child_process';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LocalRedisNode } from '@fenced/testbed';
import { Redis } from 'ioredis';

/**
 * Lets the files of a server grow by only `bytes` more. The write that passes this size is cut
 * short, as on a full disk, and the server ends.
 */
export async function limitDisk({ url, pid }: LocalRedisNode, bytes: number): Promise<void> {
  const client = new Redis(url);
  const [, root = ''] = (await client.config('GET', 'dir')) as string[];
  client.disconnect();
  const folder = join(root, 'appendonlydir');
  const files = await readdir(folder);
  const sizes = await Promise.all(files.map(async (file) => (await stat(join(folder, file))).size));
  const limit = Math.max(...sizes) + Math.floor(bytes);
  await promisify(execFile)('prlimit', ['--pid', `${pid}`, `--fsize=${limit}`]);
}
