import type { LeaseLostError } from './core/errors.js';
import { checkTtlMs } from './core/options.js';
import { isHeard, tell } from './events.js';
import type { ReleaseOutcome } from './holding.js';
import type { Lease, LeaseNodes, LeaseParts } from './lease.js';
import type { Runtime } from './runtime.js';

/** A lease as its service knows it: what happens to it is told to whoever has subscribed. */
export class Held implements LeaseParts {
  readonly owner: string;
  /** Of the list of all. */
  lease: Lease | null = null;
  before: Held | null = null;
  next: Held | null = null;
  readonly #resources: readonly string[];
  readonly #token: bigint;
  readonly #nodes: LeaseNodes;
  readonly #all: HeldLeases;
  readonly #maxTtlMs: number;
  readonly #runtime: Runtime;

  /** @param all it is taken out of them when it ends */
  constructor(
    resources: readonly string[],
    token: bigint,
    nodes: LeaseNodes,
    all: HeldLeases,
    maxTtlMs: number,
    runtime: Runtime,
  ) {
    this.owner = nodes.owner;
    this.#resources = resources;
    this.#token = token;
    this.#nodes = nodes;
    this.#all = all;
    this.#maxTtlMs = maxTtlMs;
    this.#runtime = runtime;
  }

  share(): string {
    return this.#nodes.share?.() ?? this.owner;
  }

  async extend(ttlMs: number): Promise<number> {
    const deadlineMs = await this.#nodes.extend(checkTtlMs(ttlMs, this.#maxTtlMs));
    const remainingMs = deadlineMs - this.#runtime.nowMs();
    tell('fenced:lock:extended', () => ({ ...this.#facts, remainingMs }));
    return deadlineMs;
  }

  release(): Promise<ReleaseOutcome> {
    const released = this.#nodes.release();
    if (isHeard('fenced:lock:released')) {
      void released.then((outcome) => {
        tell('fenced:lock:released', () => ({ ...this.#facts, outcome }));
      });
    }
    return released;
  }

  ended(reason: () => LeaseLostError, wasLost: boolean): void {
    this.#all.remove(this);
    if (wasLost) tell('fenced:lock:lost', () => ({ ...this.#facts, reason: reason() }));
  }

  get #facts(): { readonly resources: readonly string[]; readonly token: bigint } {
    return { resources: this.#resources, token: this.#token };
  }
}

/** The leases that a service holds, in a list that they come to and leave at little cost: no `Map`, for the reason that `Listener` has. */
export class HeldLeases {
  #last: Held | null = null;
  /** Only where somebody has asked for a lease by its owner. */
  #byOwner: Record<string, Lease> | null = null;

  add(held: Held, lease: Lease): void {
    held.lease = lease;
    held.before = this.#last;
    if (this.#last) this.#last.next = held;
    this.#last = held;
    if (this.#byOwner) this.#byOwner[held.owner] = lease;
  }

  remove(held: Held): void {
    const { before, next } = held;
    if (before) before.next = next;
    if (next) next.before = before;
    else if (this.#last === held) this.#last = before;
    held.before = null;
    held.next = null;
    if (this.#byOwner) delete this.#byOwner[held.owner];
  }

  of(owner: string): Lease | undefined {
    this.#byOwner ??= this.#index();
    return this.#byOwner[owner];
  }

  *[Symbol.iterator](): Iterator<Lease> {
    for (let held = this.#last; held; held = held.before) if (held.lease) yield held.lease;
  }

  #index(): Record<string, Lease> {
    const byOwner: Record<string, Lease> = Object.create(null);
    for (let held = this.#last; held; held = held.before) {
      if (held.lease) byOwner[held.owner] = held.lease;
    }
    return byOwner;
  }
}
