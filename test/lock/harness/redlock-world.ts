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

/** The longest lease that is ever granted here; every lease is that long. */
export const TTL_MS = 300;
/** Fences expire while a clock is an hour ahead. */
const FENCE_TTL_MS = 1_800_000;

/**
 * By then somebody holds the lock again, once a majority of the servers answers, or all of them where no majority kept its
 * memory; and by then a node votes again. It is what docs/tokens.md says, the longest lease granted and a retry, added up at its
 * worst: a lease that its holder left (300 ms); the wait of a node that may have forgotten one (300 ms); a round of readmission
 * under way that waits for a server which was away (2,000 ms), and the pause after it (375 ms); and two seconds for a machine that
 * does other things, too.
 */
export const RESUME_LIMIT_MS = TTL_MS + TTL_MS + 2_000 + 375 + 2_000;

/** For what is sure to come, and takes as long as the machine lets it. */
export const PATIENCE_MS = 30_000;

/** One name of the lock service: the server that stands for it, and a door for each half of the clients. */
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

/** A process that acquires in a loop, and why it last failed to. */
export interface Client extends AsyncDisposable {
  readonly id: string;
  readonly worker: WorkerProcess;
  readonly failures: { readonly failed: string; readonly atMs: number }[];
}

/** Sites, and several client processes that acquire in a loop, two or more behind each door. */
export class World implements AsyncDisposable {
  readonly sites: readonly Site[];
  readonly history: Acquisition[] = [];
  readonly clients: Client[] = [];
  readonly keyPrefix: string = `{${randomUUID()}}:`;
  /** Servers that are of no site and do not run, one for each site that a majority can do without. */
  readonly spares: LocalRedisNode[];
  readonly #parts = new AsyncDisposableStack();
  readonly #admins = new Map<LocalRedisNode, Redis>();

  static async start(siteCount: number, clientsPerDoor: number): Promise<World> {
    // AOF, so that a restart may find everything; the wipes take it away.
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

  /** @param named what the client calls the sites; other names than those are a misconfiguration */
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

  /** A client of our own, straight to the server. */
  admin(server: LocalRedisNode): Redis {
    let admin = this.#admins.get(server);
    if (!admin) {
      admin = new Redis(server.port, { retryStrategy: () => 20, commandTimeout: PATIENCE_MS });
      admin.on('error', () => {});
      this.#admins.set(server, admin);
    }
    return admin;
  }

  /** Resolves when so many acquisitions were asked for and made from now on. @throws where one takes `RESUME_LIMIT_MS` */
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

  /** Resolves when every client has made so many attempts more, whatever came of them. */
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

  /** For messages: what each client was told last, and what the servers remember. */
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

/** How many sites a majority can do without. */
export function minorityOf(siteCount: number): number {
  return Math.floor((siteCount - 1) / 2);
}

/** @throws where the condition has not come about after `limitMs` */
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
