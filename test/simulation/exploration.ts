import { Worker } from 'node:worker_threads';
import { type Counts, NO_COUNTS } from './counts.ts';
import type { Finding, Message, Task } from './explorer.ts';

export interface Exploration extends Counts {
  /** The first violation; null if every world kept the invariants. */
  readonly finding: Finding | null;
}

export interface ExploreOptions extends Omit<Task, 'stride'> {
  readonly workers: number;
  readonly onProgress?: (counts: Counts) => void;
}

const COUNTED = Object.keys(NO_COUNTS) as (keyof Counts)[];

/** Runs `count` worlds from `firstSeed` on, until one violates an invariant. */
export async function explore(options: ExploreOptions): Promise<Exploration> {
  const { workers, firstSeed, count, onProgress, ...world } = options;
  const total: Record<keyof Counts, number> = { ...NO_COUNTS };
  let finding: Finding | null = null;
  const threads = Array.from({ length: workers }, (_, at) => {
    const own = { firstSeed: firstSeed + at, count: count - at, stride: workers };
    const task: Task = { ...world, ...own };
    return new Worker(new URL('./explorer.ts', import.meta.url), { workerData: task });
  });
  const ends = threads.map(
    (thread) =>
      new Promise<void>((resolve, reject) => {
        thread.on('message', (message: Message) => {
          if (message.kind === 'violated') {
            finding ??= message.finding;
            return resolve();
          }
          for (const key of COUNTED) total[key] += message.counts[key];
          onProgress?.(total);
        });
        thread.on('error', reject);
        thread.on('exit', () => resolve());
      }),
  );
  const found = threads.map(
    (thread) =>
      new Promise<void>((resolve) =>
        thread.on('message', (message: Message) => message.kind === 'violated' && resolve()),
      ),
  );
  await Promise.race([Promise.all(ends), ...found]);
  await Promise.all(threads.map((thread) => thread.terminate()));
  return { ...total, finding };
}
