import { type Signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Task } from '../simulator/requests.ts';
import type { Run } from '../world/run.ts';
import { simulate } from './simulator.ts';

/** The run of a task. Null while it is calculated; the error if it failed. */
export function useRun(
  task: Extract<Task, { kind: 'story' | 'sandbox' }>,
): Signal<Run | Error | null> {
  const result = useSignal<Run | Error | null>(null);
  const text = JSON.stringify(task);
  useEffect(() => {
    const leaving = new AbortController();
    simulate(JSON.parse(text), { signal: leaving.signal }).then(
      (answer) => {
        if (answer.kind === 'run') result.value = answer.run;
      },
      (error: Error) => {
        if (!leaving.signal.aborted) result.value = error;
      },
    );
    return () => leaving.abort();
  }, [text, result]);
  return result;
}
