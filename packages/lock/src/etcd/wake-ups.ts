import { type Runtime, sleep } from '../runtime/runtime.js';
import type { EtcdClient } from './client.js';
import type { Keys } from './keys.js';

const RETRY_MS = 100;

interface WatchReply {
  readonly result?: {
    readonly created?: boolean;
    readonly canceled?: boolean;
    readonly events?: readonly { readonly kv: { readonly key: string } }[];
  };
}

/** Called with each key that is deleted, and with null when the watch begins. */
export type DeletionListener = (key: string | null) => void;

/**
 * Notifies waiters of deleted keys: one watch for all waiters of this process, as long as there are
 * any. The watch begins at the present revision, which compaction has not removed. When it begins,
 * all waiters read their queues again, because a key may have been deleted before.
 */
export class WakeUps {
  readonly #etcd: EtcdClient;
  readonly #keys: Keys;
  readonly #runtime: Runtime;
  readonly #listeners = new Set<DeletionListener>();
  #stop: AbortController | null = null;

  constructor(etcd: EtcdClient, keys: Keys, runtime: Runtime) {
    this.#etcd = etcd;
    this.#keys = keys;
    this.#runtime = runtime;
  }

  subscribe(listener: DeletionListener): void {
    this.#listeners.add(listener);
    if (!this.#stop) this.#start();
  }

  unsubscribe(listener: DeletionListener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    this.#stop?.abort();
    this.#stop = null;
  }

  /** Watches at the next member: the present one may be silent, or cut off from the cluster. */
  restart(): void {
    this.#etcd.skipMember();
    this.#start();
  }

  #start(): void {
    this.#stop?.abort();
    this.#stop = new AbortController();
    void this.#watch(this.#stop.signal);
  }

  async #watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#read(signal).catch(() => {});
      if (signal.aborted) return;
      this.#etcd.skipMember();
      await sleep(this.#runtime, RETRY_MS);
    }
  }

  /** Reads one stream to its end. */
  async #read(signal: AbortSignal): Promise<void> {
    const request = { create_request: { ...this.#keys.all, filters: ['NOPUT'] } };
    const decoder = new TextDecoder();
    let rest = '';
    for await (const bytes of await this.#etcd.stream('watch', request, signal)) {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { result } = JSON.parse(line) as WatchReply;
        // The member has ended the watch, for instance because the right to read was taken away.
        if (!result || result.canceled) return;
        if (result.created) this.#notify(null);
        for (const { kv } of result.events ?? []) this.#notify(kv.key);
      }
    }
  }

  #notify(key: string | null): void {
    for (const listener of this.#listeners) listener(key);
  }
}
