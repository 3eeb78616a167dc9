import { readdir } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { createRateLimit, type GatewayOptions } from '@fenced/gateway';
import type { Credentials } from '@fenced/gateway/credentials';
import { GatewayWorld } from '../gateway/harness/world.ts';
import { each, heapBytesNow } from './figures.ts';
import { growthIn, type Sample } from './growth.ts';

const AT_ONCE = 16;
const SAMPLES = 18;
/** One request in so many comes on a connection of its own. */
const FRESH_EVERY = 10;

export interface GatewayReport {
  readonly samples: readonly Sample[];
  /** Number of answers by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** A sentence for each figure that grew. */
  readonly growth: readonly string[];
}

/** Knows the callers `known-N`, and nobody else. */
const credentials: Credentials = {
  authenticate: async (header) => {
    const name = /^Bearer (known-\d+)$/.exec(header ?? '')?.[1];
    return name === undefined ? null : { name, may: () => true };
  },
};

/**
 * Sends that many requests to a gateway of this process. Each has a name, a caller and an address
 * of its own: a lease and its release, a write, a read, or an unknown key.
 *
 * @param options for a test of the trial itself
 */
export async function gatewayRequests(
  count: number,
  options: Partial<GatewayOptions> = {},
): Promise<GatewayReport> {
  await using world = await GatewayWorld.start();
  const limit = () => createRateLimit({ perSecond: 100, burst: 100 }, () => performance.now());
  await using front = await world.open({
    trustedProxies: ['127.0.0.1'],
    credentials,
    rate: { perKey: limit(), perAddress: limit() },
    onRequest: () => undefined,
    ...options,
  });
  using agent = new KeptAlive();
  const statuses: Record<string, number> = {};
  const send = async (at: number, method: string, path: string, body?: object): Promise<string> => {
    const headers = {
      Authorization: `Bearer ${at % 5 === 4 ? 'unknown' : 'known'}-${at}`,
      'X-Forwarded-For': `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`,
      ...(method === 'PUT' && { 'Fencing-Token': '1' }),
      ...(body && { 'Content-Type': 'application/json' }),
      ...(at % FRESH_EVERY === 0 && { Connection: 'close' }),
    };
    const { status, text } = await agent.ask(front.url + path, { method, headers }, body);
    statuses[status] = (statuses[status] ?? 0) + 1;
    return text;
  };
  const calls = [
    async (at: number) => {
      const granted = await send(at, 'POST', `/v1/leases/name-${at}`, { ttlMs: 1_000 });
      const { leaseId } = JSON.parse(granted) as { readonly leaseId: string };
      await send(at, 'DELETE', `/v1/leases/name-${at}/${leaseId}`);
    },
    (at: number) => send(at, 'PUT', `/v1/objects/name-${at}`, { at }),
    (at: number) => send(at, 'GET', `/v1/objects/nothing-${at}`),
    (at: number) => send(at, 'PUT', `/v1/records/soak/name-${at}`, { at }),
    (at: number) => send(at, 'GET', `/v1/objects/name-${at}`),
  ] as const;
  const samples: Sample[] = [];
  for (let sample = 0; sample < SAMPLES; sample++) {
    const share = Math.ceil(count / SAMPLES);
    await each(share, AT_ONCE, (at) => {
      const number = sample * share + at;
      return (calls[number % calls.length] as (typeof calls)[number])(number);
    });
    samples.push(await measure());
  }
  return { samples, statuses, growth: growthIn(samples) };
}

async function measure(): Promise<Sample> {
  const { length: descriptors } = await readdir('/proc/self/fd');
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout');
  return {
    atMs: performance.now(),
    heapBytes: heapBytesNow(),
    residentBytes: process.memoryUsage.rss(),
    descriptors,
    timers: timers.length,
    ...{ nodeBytes: 0, keys: 0, names: 0, connections: 0 },
  };
}

class KeptAlive implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });

  ask(
    url: string,
    init: { readonly method: string; readonly headers: Record<string, string> },
    body?: object,
  ): Promise<{ readonly status: number; readonly text: string }> {
    const { promise, resolve, reject } = Promise.withResolvers<{ status: number; text: string }>();
    const sent = request(url, { ...init, agent: this.#agent }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('error', reject);
      response.on('data', (piece: string) => {
        text += piece;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    sent.on('error', reject).end(body && JSON.stringify(body));
    return promise;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}
