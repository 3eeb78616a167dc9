import type { Settlement } from '@fenced/store';
import type { Calls } from './calls.js';
import { errorOf, unknownWrite } from './problems.js';
import type { Runtime } from './runtime.js';

const BACKOFF_BASE_MS = 5;
const BACKOFF_MAX_MS = 500;

/** A write as the gateway names it. */
export interface NamedWrite {
  readonly token: string;
  readonly version: string | null;
  readonly writeId: string;
}

/** @throws {OutcomeUnknownError} where the answer was cut off: the write was applied, but which one it was is not known. */
export async function writeIn(response: Response, resource: string): Promise<NamedWrite> {
  try {
    return (await response.json()) as NamedWrite;
  } catch (cause) {
    throw unknownWrite(resource, '', cause);
  }
}

/** What became of a write. @param id as errors have it */
export async function settlementOf(
  calls: Calls,
  kind: 'objects' | 'records',
  id: string,
  key: string,
  signal: AbortSignal | undefined,
): Promise<Settlement> {
  const name = `${kind}.${id}.${Buffer.from(key).toString('base64url')}`;
  const asked = { resource: key, isWrite: false };
  const answer = await calls.ask({ ...asked, method: 'GET', path: `writes/${name}`, signal });
  if (!answer.ok) throw errorOf(answer.problem, asked);
  const { outcome } = (await answer.response.json()) as { readonly outcome: Settlement };
  return outcome;
}

/** Waits for a random time that grows with the attempts, so that those who collided once do not collide again. */
export function backOff(
  runtime: Runtime,
  attempt: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
  return runtime.sleep(runtime.random() * ceilingMs, signal);
}
