import { setTimeout } from 'node:timers/promises';
import { type TcpProxy, WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { openFenced, openMarked, openPlain } from './documents/open.js';
import { type Event, History } from './history.js';
import { isFenced, type Job } from './job.js';
import type { Actor, Stage } from './scenarios/scenario.js';
import { through } from './services.js';

type ClientName = 'client 1' | 'client 2';

/** Short for client 1, whose lease the story waits for; client 2 must not lose its own while client 1 acts. */
const TTL_MS: Record<ClientName, number> = { 'client 1': 1_000, 'client 2': 10_000 };
const POLL_MS = 5;

const WORKER: URL = new URL('./worker.js', import.meta.url);
/** After the last check, before the write. */
const BEFORE_THE_WRITE = { file: WORKER, text: 'return edited;' };

/** Starts the clients of one cell, does to them what the story wants, and writes down what is seen. */
export class Director implements Stage, AsyncDisposable {
  readonly history: History = new History();
  readonly #job: Omit<Job, 'line' | 'ttlMs'>;
  readonly #proxy: TcpProxy;
  readonly #watchers: readonly Redis[];
  readonly #clients: WorkerProcess[] = [];

  /** @param proxy before the storage; client 1's packets pass through it */
  constructor(job: Omit<Job, 'line' | 'ttlMs'>, proxy: TcpProxy) {
    this.#job = job;
    this.#proxy = proxy;
    this.#watchers = job.lock.nodes.map(({ url }) => new Redis(url));
  }

  client(number: 1 | 2): Promise<Actor> {
    return this.#start(`client ${number}`, {});
  }

  clientThatStops(number: 1 | 2): Promise<Actor> {
    return this.#start(`client ${number}`, { stopAt: BEFORE_THE_WRITE });
  }

  holdPackets(): void {
    this.#proxy.hold('toServer');
  }

  async packetIsHeld(): Promise<void> {
    await this.#proxy.untilHeld('toServer');
    this.#note('storage', 'hold');
  }

  deliver(): void {
    this.#note('storage', 'deliver');
    this.#proxy.release('toServer');
  }

  loseReplies(): void {
    this.#proxy.swallow('toClient');
  }

  async replyIsLost(): Promise<void> {
    await this.#proxy.untilSwallowed('toClient');
    this.#note('storage', 'lose');
    this.#proxy.cut();
    this.#proxy.heal();
  }

  async leaseIsOver(): Promise<void> {
    const { protection, lock, resource } = this.#job;
    if (protection === 'none') return;
    const key = `${lock.keyPrefix}lock:${resource}`;
    const majority = Math.floor(this.#watchers.length / 2) + 1;
    const owners = (): Promise<(string | null)[]> =>
      Promise.all(this.#watchers.map((node) => node.get(key)));
    // The next client may hold the lock by the time we look again: only this owner's lease counts.
    const owner = (await owners()).find((held) => held !== null);
    const holds = (held: string | null): boolean => held !== null && held === owner;
    while ((await owners()).filter(holds).length >= majority) await setTimeout(POLL_MS);
    this.#note('lock nodes', 'expire');
  }

  /** Reads what is stored in the end, directly and as the clients would. */
  async readFinalState(): Promise<void> {
    const { protection, storage } = this.#job;
    const open = protection === 'metadata' ? openMarked : openFenced;
    await using document = await (isFenced(protection) ? open : openPlain)(storage);
    this.history.record({
      actor: 'storage',
      operation: 'final',
      phase: 'ok',
      lines: await document.read(),
      ...('highest' in document && { token: (await document.highest()).toString() }),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.kill()));
    const node = `${this.#job.lock.keyPrefix}node`;
    await Promise.all(this.#watchers.map((watcher) => watcher.del(node)));
    for (const watcher of this.#watchers) watcher.disconnect();
  }

  async #start(name: ClientName, options: { stopAt?: typeof BEFORE_THE_WRITE }): Promise<Actor> {
    const { storage } = this.#job;
    const { host, port } = this.#proxy;
    const job: Job = {
      ...this.#job,
      line: name,
      ttlMs: TTL_MS[name],
      storage: name === 'client 1' ? through(storage, host, port) : storage,
    };
    const process = await WorkerProcess.start(WORKER, {
      ...options,
      args: [JSON.stringify(job)],
      onLine: (line) => this.history.record({ actor: name, ...JSON.parse(line) }),
    });
    this.#clients.push(process);
    return {
      reachedItsWrite: () => process.reachedStop(),
      proceed: () => process.proceed(),
      pause: async () => {
        await process.pause();
        this.#note(name, 'pause');
      },
      wake: async () => {
        this.#note(name, 'wake');
        await process.wake();
      },
      finished: async () => {
        const { code, signal } = await process.exited;
        if (code !== 0) {
          throw new Error(`${name} crashed code=${code} signal=${signal} ${process.stderr}`);
        }
      },
    };
  }

  #note(actor: Event['actor'], operation: Event['operation']): void {
    this.history.record({ actor, operation, phase: 'ok' });
  }
}
