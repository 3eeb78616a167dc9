import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { inPath } from './world.js';

/** Time after which a request counts as hanging. */
const ANSWER_LIMIT_MS = 30_000;

/** One update, with the outcome that its client knows. */
export interface Deed {
  readonly id: string;
  readonly token: bigint;
  /** `applied`: acknowledged. `unknown`: no answer, or one after which both are possible. */
  readonly outcome: 'applied' | 'refused' | 'unknown';
}

/**
 * Clients that all add to one document: each acquires a lease, reads and writes with its token, and
 * releases it. Each request goes to the next gateway.
 */
export class Load {
  readonly deeds: Deed[] = [];
  /** The number of answers by status; 0 if the connection was lost. */
  readonly answers: Map<number, number> = new Map();
  /** The duration of the slowest answer. */
  slowestMs = 0;
  readonly #urls: () => readonly string[];
  readonly #path: string;
  readonly #resource: string;
  readonly #stopped = new AbortController();
  readonly #clients: Promise<void>[];
  #turn = 0;

  /** @param urls returns the addresses of the gateways that run at this moment */
  constructor(urls: () => readonly string[], kind: 'objects' | 'records', clients: number) {
    this.#urls = urls;
    this.#resource = `load/${randomUUID()}`;
    this.#path = `/v1/${kind}/${this.#resource}`;
    this.#clients = Array.from({ length: clients }, (_, at) => this.#run(String(at)));
  }

  get applied(): number {
    return this.deeds.filter(({ outcome }) => outcome === 'applied').length;
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#clients);
  }

  /**
   * Returns the mistakes in the stored document. It must have each acknowledged deed once, no
   * refused one, and growing tokens.
   */
  async verdict(): Promise<string[]> {
    const response = await this.#ask('GET', this.#path, {});
    const entries = (await response.json()) as { id: string; token: string }[];
    const count = (id: string): number => entries.filter((entry) => entry.id === id).length;
    const wrong = this.deeds.flatMap(({ id, outcome }) => {
      const times = count(id);
      if (outcome === 'applied' && times !== 1)
        return [`${id} was acknowledged, and is there ${times} times`];
      if (outcome === 'refused' && times !== 0) return [`${id} was refused, and is there`];
      return times > 1 ? [`${id} is there ${times} times`] : [];
    });
    const falls = entries.filter(
      (entry, at) => at > 0 && BigInt(entry.token) <= BigInt(entries[at - 1]?.token ?? 0),
    );
    return [
      ...wrong,
      ...falls.map(({ id }) => `${id} has a token that is not above the one before it`),
    ];
  }

  async #run(name: string): Promise<void> {
    for (let number = 1; !this.#stopped.signal.aborted; number++) {
      const isDone = await this.#once(`${name}.${number}`).catch((error: unknown) => {
        if (error instanceof Error && error.name === 'TimeoutError') throw error;
        return false;
      });
      if (!isDone) await sleep(20);
    }
  }

  /** @returns true if it sent a write. @throws if a request got no answer */
  async #once(id: string): Promise<boolean> {
    const lease = await this.#acquire();
    if (lease === null) return false;
    const headers = { 'Fencing-Token': lease.token, 'Content-Type': 'application/json' };
    const read = await this.#ask('POST', `${this.#path}/claim-and-get`, headers);
    const text = await read.text();
    if (read.status !== 200 && read.status !== 404) return false;
    const entries = read.status === 200 ? (JSON.parse(text) as object[]) : [];
    const body = JSON.stringify([...entries, { id, token: lease.token }]);
    const deed = { id, token: BigInt(lease.token) };
    try {
      const { status } = await this.#ask('PUT', this.#path, headers, body);
      const isRefused = [400, 409, 412, 503].includes(status);
      this.deeds.push({
        ...deed,
        outcome: status === 200 ? 'applied' : isRefused ? 'refused' : 'unknown',
      });
    } catch (error) {
      this.deeds.push({ ...deed, outcome: 'unknown' });
      throw error;
    }
    await this.#ask('DELETE', `/v1/leases/${inPath(this.#resource)}/${lease.leaseId}`, {});
    return true;
  }

  async #acquire(): Promise<{ readonly token: string; readonly leaseId: string } | null> {
    const response = await this.#ask(
      ...(['POST', `/v1/leases/${inPath(this.#resource)}`] as const),
      { 'Content-Type': 'application/json' },
      JSON.stringify({ ttlMs: 400, waitMs: 500 }),
    );
    const body = (await response.json()) as { token: string; leaseId: string };
    return response.status === 201 ? body : null;
  }

  async #ask(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<Response> {
    const urls = this.#urls();
    const url = urls[this.#turn++ % urls.length];
    const startedMs = performance.now();
    const signal = AbortSignal.timeout(ANSWER_LIMIT_MS);
    let status = 0;
    try {
      const response = await fetch(url + path, {
        method,
        headers,
        signal,
        ...(body !== undefined && { body }),
      });
      ({ status } = response);
      return response;
    } finally {
      this.answers.set(status, (this.answers.get(status) ?? 0) + 1);
      this.slowestMs = Math.max(this.slowestMs, performance.now() - startedMs);
    }
  }
}
