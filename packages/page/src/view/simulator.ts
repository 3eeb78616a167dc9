import type { Mutant } from '../../../../test/simulation/mutant-list.ts';
import { fileOf } from '../simulator/file-name.ts';
import type { Answer, Task } from '../simulator/requests.ts';

type Result = Exclude<Answer, { kind: 'progress' | 'failed' }>;

/**
 * Runs a task in a new worker, which ends with the answer or the signal.
 *
 * @throws Error the task failed, or the worker could not be loaded
 */
export function simulate(
  task: Task,
  options: {
    readonly mutant?: Mutant | null;
    readonly signal?: AbortSignal;
    readonly onProgress?: (seeds: number) => void;
  } = {},
): Promise<Result> {
  const { mutant = null, signal, onProgress } = options;
  const worker = new Worker(new URL(fileOf(mutant), document.baseURI), { type: 'module' });
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  worker.onmessage = ({ data }: MessageEvent<Answer>) => {
    if (data.kind === 'progress') onProgress?.(data.seeds);
    else if (data.kind === 'failed') reject(new Error(data.message));
    else resolve(data);
  };
  worker.onerror = () => reject(new Error('the simulator could not be loaded'));
  signal?.addEventListener('abort', () => reject(signal.reason));
  worker.postMessage(task);
  return promise.finally(() => worker.terminate());
}
