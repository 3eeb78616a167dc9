/** Who did something, in the order of the timeline's lanes. */
export const actors = ['client 1', 'client 2', 'lock nodes', 'storage'] as const;
export type Actor = (typeof actors)[number];

/**
 * `invoke`: it was asked for; then `ok`, `refused` (certainly not done), `unknown` (perhaps done), or `failed` (the
 * program gave up before it asked).
 */
export type Phase = 'invoke' | 'ok' | 'refused' | 'unknown' | 'failed';

export type Operation =
  // Of a client, as its program reports them.
  | 'probe'
  | 'acquire'
  | 'claim'
  | 'read'
  | 'check'
  | 'write'
  | 'release'
  // Done to a client by the director, and observed by it.
  | 'pause'
  | 'wake'
  // Of the lock nodes: nobody holds the lock any more.
  | 'expire'
  // Of the storage's side: client 1's bytes wait in the network, arrive; a reply is lost; what is stored in the end.
  | 'hold'
  | 'lose'
  | 'deliver'
  | 'final';

/** What the document holds: one line a client has added. */
export type Lines = readonly string[];

export interface Event {
  /** Monotonic milliseconds since the cell began; one clock for all processes of this machine. */
  readonly atMs: number;
  readonly actor: Actor;
  readonly operation: Operation;
  readonly phase: Phase;
  /** What was read, is to be written, or is stored in the end. */
  readonly lines?: Lines;
  /** The lease's fencing token; in the end, the highest that the storage has seen. */
  readonly token?: string;
  /** How long the lease may be relied on, from then on. */
  readonly validMs?: number;
  /** On a refusal: the highest token that the storage has seen. */
  readonly highest?: string;
  /** What an error said. */
  readonly reason?: string;
}

/** Milliseconds on the machine's monotonic clock, which all its processes share. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Collects what happens in one cell. */
export class History {
  readonly #startedMs: number = monotonicMs();
  readonly #events: Event[] = [];

  /** @param fact its `atMs` is on the machine's monotonic clock; now, where it has none */
  record(fact: Omit<Event, 'atMs'> & { readonly atMs?: number }): void {
    const atMs = (fact.atMs ?? monotonicMs()) - this.#startedMs;
    this.#events.push({ ...fact, atMs: Math.round(atMs * 10) / 10 });
  }

  /** In the order in which it happened. */
  get events(): readonly Event[] {
    return this.#events.toSorted((a, b) => a.atMs - b.atMs);
  }
}
