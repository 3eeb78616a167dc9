import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { Runtime } from '../runtime/runtime.js';
import type {
  ChannelListener,
  ClientAdapter,
  NodeClient,
  ScriptArguments,
  ShardedListener,
  SpareClient,
} from './client.js';

/** Least and most milliseconds from one replacement to the next, while none of them helps. */
const PAUSE_MIN_MS = 100;
const PAUSE_MAX_MS = 2_000;

/**
 * The way to one node: the owner's client, and a spare client in its place once the owner's
 * connection has turned out to be useless. All lock services of the owner's client share it.
 *
 * The owner's client is never touched, because other work of the owner may go on there. A spare has
 * the owner's settings. It ends with the owner's client, or with the last lock service.
 *
 * Why this is safe: a request on a connection that was replaced is one whose reply may be lost, and
 * which may arrive late. The protocol allows that at any time; see `mayBeLate` in `Reply`. A
 * replaced spare stays open for as long as anybody waits for a reply. So a slow node loses nothing,
 * and gets a new connection every 2 s at most.
 */
export class WatchedClient implements NodeClient {
  readonly address: string | null;
  readonly isCluster: boolean;
  readonly owner: ClientAdapter;
  #spare: SpareClient | null = null;
  #connection = 0;
  #users = 0;
  #pauseMs = PAUSE_MIN_MS;
  #nextMs = Number.NEGATIVE_INFINITY;
  readonly #endWithOwner = (): void => {
    if (this.owner.isClosed) this.#endSpare();
    else if (this.#spare) this.owner.onceConnected(this.#endWithOwner);
  };

  constructor(owner: ClientAdapter) {
    this.owner = owner;
    this.address = owner.address;
    this.isCluster = owner.isCluster;
  }

  get connection(): number {
    return this.#connection;
  }

  get state(): string {
    return this.#present.state;
  }

  get isConnecting(): boolean {
    return this.#present.isConnecting;
  }

  get isClosed(): boolean {
    return this.#present.isClosed;
  }

  get isOrdered(): boolean {
    return this.#present.isOrdered;
  }

  get lastError(): Error | null {
    return this.#present.lastError;
  }

  onceConnected(callback: () => void): void {
    this.#present.onceConnected(callback);
  }

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    return this.#present.evalsha(sha1, args);
  }

  eval(source: string, args: ScriptArguments): Promise<unknown> {
    return this.#present.eval(source, args);
  }

  configGet(parameter: string): Promise<string | null> {
    return this.#present.configGet(parameter);
  }

  subscribe(channel: string, listener: ChannelListener): (() => void) | null {
    return this.owner.subscribe(channel, listener);
  }

  subscribeSharded(channel: string, listener: ShardedListener): (() => void) | null {
    return this.owner.subscribeSharded?.(channel, listener) ?? null;
  }

  replace(connection: number, runtime: Pick<Runtime, 'nowMs' | 'after'>): void {
    const nowMs = runtime.nowMs();
    if (connection !== this.#connection || nowMs < this.#nextMs) return;
    // An answer may come after the last lock service has closed. Nobody would end the spare.
    if (this.#users === 0 || this.owner.isClosed) return;
    const before = this.#spare;
    const spare = this.owner.spare();
    if (!spare) return;
    const helped = nowMs - this.#nextMs > PAUSE_MAX_MS;
    this.#pauseMs = helped ? PAUSE_MIN_MS : Math.min(2 * this.#pauseMs, PAUSE_MAX_MS);
    this.#nextMs = nowMs + this.#pauseMs;
    this.#connection += 1;
    this.#spare = spare;
    if (before) runtime.after(NODE_TIMEOUT_MAX_MS, () => before.close(), 'background');
    else this.owner.onceConnected(this.#endWithOwner);
  }

  use(): () => void {
    this.#users += 1;
    let isUsed = true;
    return () => {
      if (!isUsed) return;
      isUsed = false;
      this.#users -= 1;
      if (this.#users === 0) this.#endSpare();
    };
  }

  get #present(): ClientAdapter {
    if (this.#spare === null) return this.owner;
    // Valkey GLIDE does not report that its owner has closed it.
    if (this.owner.isClosed) this.#endSpare();
    return this.#spare ?? this.owner;
  }

  #endSpare(): void {
    if (this.#spare) this.#connection += 1;
    this.#spare?.close();
    this.#spare = null;
  }
}
