import { setTimeout } from 'node:timers/promises';

const POLL_MS = 5;
/** About ten times the longest wait of a story. */
const LIMIT_MS = 30_000;

/** Polls until the condition holds. @throws after 30 s */
export async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const startedMs = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedMs > LIMIT_MS)
      throw new Error(`not within ${LIMIT_MS} ms: ${what}`);
    await setTimeout(POLL_MS);
  }
}
