import type { Runtime } from './runtime.js';

/**
 * Shares one answer among all callers until it is `freshMs` old. At most one question runs at a
 * time, so many callers cost as much as one. A failure is an answer, too.
 */
export function shared<Answer>(
  ask: () => Promise<Answer>,
  freshMs: number,
  runtime: Runtime,
): () => Promise<Answer> {
  let answer: Promise<Answer> | undefined;
  let freshUntilMs = 0;
  return () => {
    if (answer !== undefined && runtime.nowMs() < freshUntilMs) return answer;
    freshUntilMs = Number.POSITIVE_INFINITY;
    answer = ask();
    const came = (): void => {
      freshUntilMs = runtime.nowMs() + freshMs;
    };
    answer.then(came, came);
    return answer;
  };
}
