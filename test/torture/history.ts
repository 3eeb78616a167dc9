import { createHash } from 'node:crypto';

/** Outcome of an operation. `refused` and `failed` changed nothing. `unknown` may have happened. */
export type Outcome = 'ok' | 'refused' | 'failed' | 'unknown';

/** One operation of one client process: one line of a history. See docs/torture.md. */
export interface Operation {
  /** A client and a thread: `c1.0`. A client that was started anew has another name. */
  readonly process: string;
  readonly kind: 'acquire' | 'extend' | 'release' | 'update' | 'put' | 'claim' | 'read';
  /** `lock/r0`, or a store and a resource: `s3/r0`, `records/r0`, `table/r0`. */
  readonly object: string;
  /** Nanoseconds since the run began, by the monotonic clock that all processes share. */
  readonly callNs: number;
  /** Null if the process was killed before. */
  readonly returnNs: number | null;
  readonly outcome: Outcome;
  /** The token that was granted, or that the write presented. */
  readonly token?: string | undefined;
  /** The value that was written or read. Each attempt of a write has a value of its own. */
  readonly value?: string | null | undefined;
  /** The value that an update replaced. */
  readonly from?: string | null | undefined;
  /** The highest token, as a refusal or a read reported it. */
  readonly highest?: string | undefined;
  /** The time until which the holder believed in its lease. */
  readonly untilNs?: number;
  /** Code of the error. */
  readonly code?: string;
}

/** Collects the lines of all processes while they run. */
export class Recorder {
  readonly #startedNs: bigint = process.hrtime.bigint();
  readonly #byId = new Map<string, Partial<Operation>>();

  /** Nanoseconds since the run began. */
  nowNs(): number {
    return Number(process.hrtime.bigint() - this.#startedNs);
  }

  /**
   * Adds a part of an operation.
   *
   * @param text JSON with the `id` of the operation; its times are absolute nanoseconds in digits
   */
  add(process: string, text: string): void {
    const { id, ...facts } = JSON.parse(text, (key, value) =>
      key.endsWith('Ns') ? Number(BigInt(value) - this.#startedNs) : value,
    );
    const key = `${process} ${id}`;
    this.#byId.set(key, { process, ...this.#byId.get(key), ...facts });
  }

  /** All operations in the order of their calls. Those without an outcome are unknown. */
  operations(): readonly Operation[] {
    return [...this.#byId.values()]
      .map((facts) => ({ returnNs: null, outcome: lostOutcome(facts), ...facts }) as Operation)
      .flatMap((operation) => [operation.object].flat().map((object) => ({ ...operation, object })))
      .toSorted((a, b) => a.callNs - b.callNs);
  }
}

/** An update without a value was killed before it computed one, so it sent no write. */
function lostOutcome({ kind, value }: Partial<Operation>): Outcome {
  return kind === 'update' && value === undefined ? 'failed' : 'unknown';
}

export function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
