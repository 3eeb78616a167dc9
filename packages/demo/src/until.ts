import { setTimeout } from 'node:timers/promises';

const POLL_MS = 5;
/** Whatever is waited for here takes a tenth of it. Where it does not come, that is an error and no endless demo. */
const LIMIT_MS = 30_000;

/** Resolves when the condition holds, of which no event tells. */
export async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const startedMs = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedMs > LIMIT_MS) throw new Error(`waited in vain: ${what}`);
    await setTimeout(POLL_MS);
  }
}
