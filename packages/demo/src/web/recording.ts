import type { CheckResult } from '../checker.js';
import type { Event } from '../history.js';
import type { LockKind, Protection, StoreKind } from '../job.js';

/** The first member of a recorded run. */
export const FORMAT = 'fenced-run-1';

/** The variant of a recorded run. */
export interface RecordedVariant {
  /** Null if the reader made the faults. */
  readonly story: number | null;
  readonly title: string;
  readonly lock: LockKind;
  readonly protection: Protection;
  readonly store: StoreKind;
}

/** A time in which a lock node held a lease by its own clock, as polling saw it. */
export interface SeenLease {
  readonly node: string;
  /** Null if the lock issues no tokens. */
  readonly token: string | null;
  readonly fromMs: number;
  /** Null if the run ended before. */
  readonly untilMs: number | null;
}

/** A recorded run of real processes and servers. */
export interface Recording {
  readonly format: typeof FORMAT;
  /** Day of the run. */
  readonly date: string;
  readonly commit: string;
  /** Names and versions of the servers, of Node, and of the processors. */
  readonly machine: Readonly<Record<string, string>>;
  readonly variant: RecordedVariant;
  /** Letters of the lock nodes. */
  readonly nodes: readonly string[];
  readonly events: readonly Event[];
  readonly leases: readonly SeenLease[];
  readonly endMs: number;
  readonly verdict: CheckResult;
  /** SHA-256 of the recording as JSON without this member. */
  readonly sha256: string;
}

export async function seal(recording: Omit<Recording, 'sha256'>): Promise<Recording> {
  return { ...recording, sha256: await sha256Of(recording) };
}

/** Returns true if no member was changed since the recording was sealed. */
export async function isSealed({ sha256, ...recording }: Recording): Promise<boolean> {
  return (await sha256Of(recording)) === sha256;
}

async function sha256Of(recording: Omit<Recording, 'sha256'>): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(recording));
  const digest = await crypto.subtle.digest('SHA-256', bytes);
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
