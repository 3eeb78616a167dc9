import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock } from '@fenced/lock';
import {
  type LocalRedisNode,
  type LocalRedisService,
  startLocalRedis,
  TcpProxy,
  WorkerProcess,
} from '@fenced/testbed';
import { Redis } from 'ioredis';
import type { Acquisition } from './redlock-history.js';

/** The TTL of every lease in these worlds, and so the longest lease that nodes grant. */
export const TTL_MS = 300;
/** Half an hour: nodes forget tokens while a fault sets their clock an hour ahead. */
const FENCE_TTL_MS = 1_800_000;

/**
 * The time limit within which some client gets the lock again, and a node votes again. It begins
 * when a majority of the servers answers. If no majority kept its memory, all servers must answer.
 *
 * It is the sum of the longest possible delays, which docs/tokens.md explains:
 *
 * - 300 ms: a lease whose holder has died.
 * - 300 ms: the recovery wait of a node that may have forgotten a lease.
 * - 2,000 ms: a round of readmission that began before, and still waits for a server.
 * - 375 ms: the pause before the next round.
 * - 2,000 ms: slack for a busy machine.
 */
export const RESUME_LIMIT_MS = TTL_MS + TTL_MS + 2_000 + 375 + 2_000;

/** Time limit for events that certainly happen. It is long, for slow machines. */
export const PATIENCE_MS = 30_000;

/** One node name, its present server, and two doors: a proxy for each half of the clients. */
export class Site {
  readonly name: string;
  readonly doors: readonly TcpProxy[];
  server: LocalRedisNode;

  constructor(name: string, server: LocalRedisNode, doors: readonly TcpProxy[]) {
    this.name = name;
    this.server = server;
    this.doors = doors;
  }
}

/** A process that acquires in a loop, and its failures. */
export interface Client extends AsyncDisposable {
  readonly id: string;
  readonly worker: WorkerProcess;
  readonly failures: { readonly failed: string; readonly atMs: number }[];
}

/** Sites, and client processes that acquire in a loop. Several clients share each door. */
export class World implements AsyncDisposable {
  readonly sites: readonly Site[];
  readonly history: Acquisition[] = [];
  readonly clients: Client[] = [];
  readonly keyPrefix: string = `{${randomUUID()}}:`;
  /** Stopped servers without a site, for failovers: as many as sites may fail at a time. */
  readonly spares: LocalRedisNode[];
  readonly #parts = new AsyncDisposableStack();
  readonly #admins = new Map<LocalRedisNode, Redis>();

  static async start(siteCount: number, clientsPerDoor: number): Promise<World> {
    // An append-only file lets a restart find all data; the wipes remove it.
    const service = await startLocalRedis(siteCount + minorityOf(siteCount), {
      persistence: 'aof',
      hasMovableClock: true,
      args: ['--repl-diskless-sync-delay', '0'],
    });
    const world = new World(service, await openDoors(service.nodes.slice(0, siteCount)));
    await Promise.all(world.spares.map((spare) => spare.kill()));
    for (const door of [0, 1]) {
      for (let at = 0; at < clientsPerDoor; at += 1) {
        world.clients.push(await world.startClient(door, world.sites));
      }
    }
    return world;
  }

  private constructor(service: LocalRedisService, sites: readonly Site[]) {
    this.#parts.use(service);
    for (const door of sites.flatMap(({ doors }) => doors)) this.#parts.use(door);
    this.sites = sites;
    this.spares = service.nodes.slice(sites.length);
  }

  /** @param named the sites under the names that the client is configured with, right or wrong */
  async startClient(door: number, named: readonly Pick<Site, 'name' | 'doors'>[]): Promise<Client> {
    const nodes = named.map(({ name, doors }) => ({ name, port: doors[door]?.port }));
    const config = {
      nodes,
      keyPrefix: this.keyPrefix,
      maxTtlMs: TTL_MS,
      fenceTtlMs: FENCE_TTL_MS,
    };
    const id = randomUUID();
    const failures: Client['failures'] = [];
    const worker = await WorkerProcess.start(new URL('./acquirer.ts', import.meta.url), {
      args: [JSON.stringify(config)],
      onLine: (line) => {
        const told = JSON.parse(line);
        if (told.failed) failures.push(told);
        else this.history.push({ client: id, ...told, token: BigInt(told.token) });
      },
    });
    this.#parts.use(worker);
    return { id, worker, failures, [Symbol.asyncDispose]: () => worker[Symbol.asyncDispose]() };
  }

  /** A client of the test itself, straight to the server. */
  admin(server: LocalRedisNode): Redis {
    let admin = this.#admins.get(server);
    if (!admin) {
      admin = new Redis(server.port, { retryStrategy: () => 20, commandTimeout: PATIENCE_MS });
      admin.on('error', () => {});
      this.#admins.set(server, admin);
    }
    return admin;
  }

  /**
   * Resolves after `count` acquisitions that began from now on. @throws if one takes
   * `RESUME_LIMIT_MS`
   */
  async untilAcquired(count: number): Promise<void> {
    const sinceMs = Number(process.hrtime.bigint()) / 1e6;
    const made = (): number => this.history.filter(({ askedMs }) => askedMs > sinceMs).length;
    for (let next = 1; next <= count; next = made() + 1) {
      await within(
        RESUME_LIMIT_MS,
        `acquisition ${next} of ${count}`,
        () => made() >= next,
        () => this.#situation(),
      );
    }
  }

  /** Resolves when every client has made `count` more tries, with any result. */
  async untilTried(count: number): Promise<void> {
    const tried = ({ id, failures }: Client): number =>
      failures.length + this.history.filter(({ client }) => client === id).length;
    const before = this.clients.map(tried);
    const isOver = (): boolean =>
      this.clients.every((client, at) => tried(client) >= (before[at] ?? 0) + count);
    await within(PATIENCE_MS, `${count} attempts of every client`, isOver);
  }

  /** Resolves when the votes of all sites' servers count. @throws after `RESUME_LIMIT_MS` */
  async untilVoting(): Promise<void> {
    const nodes = this.sites.map(({ name, server }) => ({ name, client: this.admin(server) }));
    await using onlooker = new Redlock({ nodes, keyPrefix: this.keyPrefix });
    const isVoting = async (): Promise<boolean> =>
      (await onlooker.status()).every((node) => node.reachable && node.noVote === null);
    await within(RESUME_LIMIT_MS, 'the votes of all', isVoting, () => this.#situation());
  }

  /** For error messages: the last failures of each client, and the memory of the servers. */
  async #situation(): Promise<string> {
    const clients = this.clients.map(({ failures }) => failures.slice(-3));
    const memories = this.sites.map(({ server }) =>
      this.admin(server).hgetall(`${this.keyPrefix}node`).catch(String),
    );
    return JSON.stringify({ clients, memories: await Promise.all(memories) }, null, 1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const admin of this.#admins.values()) admin.disconnect();
    await this.#parts.disposeAsync();
  }
}

/** The number of sites that a majority does not need. */
export function minorityOf(siteCount: number): number {
  return Math.floor((siteCount - 1) / 2);
}

/** @throws if the condition is not true after `limitMs` */
export async function within(
  limitMs: number,
  what: string,
  condition: () => Promise<boolean> | boolean,
  why: () => Promise<string> | string = () => '',
): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!(await condition())) {
    if (performance.now() > endMs) {
      throw new Error(`waited ${limitMs} ms in vain for ${what} ${await why()}`);
    }
    await sleep(5);
  }
}

function openDoors(servers: readonly LocalRedisNode[]): Promise<Site[]> {
  return Promise.all(
    servers.map(async (server) => {
      const doors = await Promise.all([TcpProxy.start(server), TcpProxy.start(server)]);
      return new Site(server.name, server, doors);
    }),
  );
}
