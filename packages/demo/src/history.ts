/** Who has a lane in the timeline, in their order there. */
export const lanes = ['client 1', 'client 2', 'lock nodes', 'storage'] as const;
export type Lane = (typeof lanes)[number];
/** Who did something. Gateway A is that of client 1. */
export type Actor = Lane | 'gateway A';

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
  // Done to a client or a gateway by the director, and observed by it.
  | 'pause'
  | 'wake'
  // Of the lock nodes: nobody holds the lock any more; some of them forget who does; a client reaches only some.
  | 'expire'
  | 'forget'
  | 'reach'
  // Of the network: bytes of client 1 to the storage, or of the lock nodes to it, wait there, arrive; a reply to it is lost.
  | 'hold'
  | 'deliver'
  | 'lose'
  // Of the storage: what is stored in the end.
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
  /** What an error said, what the lock nodes answered, or what was done to them. */
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
  readonly #waiting = new Set<(event: Event) => void>();

  /** @param fact its `atMs` is on the machine's monotonic clock; now, where it has none */
  record(fact: Omit<Event, 'atMs'> & { readonly atMs?: number }): void {
    const atMs = (fact.atMs ?? monotonicMs()) - this.#startedMs;
    const event = { ...fact, atMs: Math.round(atMs * 10) / 10 };
    this.#events.push(event);
    for (const look of this.#waiting) look(event);
  }

  /** Resolves when there are so many events of that kind. */
  recorded(actor: Actor, operation: Operation, phase: Phase, times: number): Promise<void> {
    let missing = times;
    return new Promise((resolve) => {
      const look = (event: Event): void => {
        if (event.actor !== actor || event.operation !== operation || event.phase !== phase) return;
        missing -= 1;
        if (missing === 0) resolve();
      };
      this.#waiting.add(look);
      for (const event of this.#events) look(event);
    });
  }

  /** In the order in which it happened. */
  get events(): readonly Event[] {
    return this.#events.toSorted((a, b) => a.atMs - b.atMs);
  }
}
