import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Redis } from 'ioredis';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Bytes of the heap of this process, after a garbage collection. */
export function heapBytesNow(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** A number in the reply of `INFO`. */
export async function figure(admin: Redis, section: string, field: string): Promise<number> {
  const [, value] = new RegExp(`^${field}:(.*)$`, 'm').exec(await admin.info(section)) ?? [];
  return Number(value);
}

/** Processor time of each node since its start. */
export async function nodesCpuMs(admins: readonly Redis[]): Promise<readonly number[]> {
  return Promise.all(
    admins.map(async (admin) => {
      const user = await figure(admin, 'cpu', 'used_cpu_user');
      return 1_000 * (user + (await figure(admin, 'cpu', 'used_cpu_sys')));
    }),
  );
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Runs `count` operations, `atOnce` of them at any time. */
export async function each(
  count: number,
  atOnce: number,
  run: (at: number) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      await run(next - 1);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, count) }, work));
}
