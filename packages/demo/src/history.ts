/** The timeline's lanes, from left to right. */
export const lanes = ['client 1', 'client 2', 'lock nodes', 'storage'] as const;
export type Lane = (typeof lanes)[number];
/** Source of an event. Client 1 uses gateway A. */
export type Actor = Lane | 'gateway A';

/**
 * `invoke` begins an operation. It ends as `ok`, `refused` (certainly not done), `unknown`
 * (perhaps done) or `failed` (the program gave up before it asked).
 */
export type Phase = 'invoke' | 'ok' | 'refused' | 'unknown' | 'failed';

export type Operation =
  // Reported by a client's program.
  | 'probe'
  | 'acquire'
  | 'claim'
  | 'read'
  | 'check'
  | 'write'
  | 'release'
  // Faults of a client or a gateway.
  | 'pause'
  | 'wake'
  // Lock nodes: the lease ends; some nodes forget it; a client reaches only some nodes.
  | 'expire'
  | 'forget'
  | 'reach'
  // Network: packets of client 1, or replies to it, wait; they arrive; a reply is lost.
  | 'hold'
  | 'deliver'
  | 'lose'
  // Storage: the final state.
  | 'final';

/** Content of the document: one line for each client that has added one. */
export type Lines = readonly string[];

export interface Event {
  /** Monotonic milliseconds since the run began. All processes of this machine share the clock. */
  readonly atMs: number;
  readonly actor: Actor;
  readonly operation: Operation;
  readonly phase: Phase;
  /** The lines read, to be written, or stored in the end. */
  readonly lines?: Lines;
  /** Of a lease: its fencing token. Of the final state: the highest token that was seen. */
  readonly token?: string;
  /** Remaining validity of the lease. */
  readonly validMs?: number;
  /** Of a refusal: the highest token that the storage has seen. */
  readonly highest?: string;
  /** An error's message, the lock nodes' answers, or the fault. */
  readonly reason?: string;
}

/** Milliseconds on the machine's monotonic clock, which all its processes share. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}

/** Collects the events of one run. */
export class History {
  readonly #startedMs: number = monotonicMs();
  readonly #events: Event[] = [];
  readonly #listeners = new Set<(event: Event) => void>();

  /** Milliseconds since the run began. */
  get nowMs(): number {
    return round(monotonicMs() - this.#startedMs);
  }

  /** @param fact its `atMs` is a time of the machine's monotonic clock. @default now */
  record(fact: Omit<Event, 'atMs'> & { readonly atMs?: number }): void {
    const atMs = (fact.atMs ?? monotonicMs()) - this.#startedMs;
    const event = { ...fact, atMs: round(atMs) };
    this.#events.push(event);
    for (const listener of this.#listeners) listener(event);
  }

  /** Calls the listener with each event, also with the earlier ones. */
  onEvent(listener: (event: Event) => void): void {
    this.#listeners.add(listener);
    for (const event of this.#events) listener(event);
  }

  /** Resolves after `times` events of this actor, operation and phase. */
  recorded(actor: Actor, operation: Operation, phase: Phase, times: number): Promise<void> {
    let missing = times;
    return new Promise((resolve) => {
      this.onEvent((event) => {
        if (event.actor !== actor || event.operation !== operation || event.phase !== phase) return;
        missing -= 1;
        if (missing === 0) resolve();
      });
    });
  }

  /** All events in the order of their times. */
  get events(): readonly Event[] {
    return this.#events.toSorted((a, b) => a.atMs - b.atMs);
  }
}
