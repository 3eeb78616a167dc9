import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { PostgresLock } from '@fenced/lock/postgres';
import { FencedPostgres } from '@fenced/store/postgres';
import {
  type LocalPostgres,
  type LocalRedisNode,
  MovableClock,
  type S3Address,
  type S3Service,
  startLocalPostgres,
  startS3,
  TcpProxy,
  WorkerProcess,
} from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import { Phoenix } from '../gateway/harness/phoenix.ts';
import { configFile } from '../gateway/harness/process.ts';
import { within } from '../lock/harness/redlock-world.ts';
import type { ClientConfig } from './client.ts';
import { TTL_MS, ttlMsOf } from './held.ts';
import { Recorder } from './history.ts';
import {
  type LockServers,
  type Member,
  openLockDoors,
  startLockServers,
  upstreamOf,
} from './lock-servers.ts';
import {
  ASYNCHRONOUS,
  connect,
  hasVotes,
  isMovable,
  isOnRedis,
  type Moves,
  type NodeAddress,
  OURS,
  openRedlock,
} from './locks.ts';
import type { MoverConfig } from './mover.ts';
import { NAME } from './stores.ts';

export interface WorldOptions {
  readonly seed: number;
  readonly workload: string;
  readonly subject: string;
  /** Rounds that a client runs at the same time. */
  readonly threads: number;
  /** True if faults move wall clocks. */
  readonly hasMovableClocks: boolean;
}

const GROUPS = 2;
const CLIENTS_PER_GROUP = 2;
/** The default of `Redlock`. */
const KEY_PREFIX = '{fenced}:';
/** Moves that a client knows in advance. */
const MOVES_AHEAD = 50;
/** Time in which each client notices a move. Pauses, waits and stops of clients are shorter. */
const FOLLOWED_MS = 15 * TTL_MS;
/** Threads that contend for a resource, on average. */
const THREADS_PER_RESOURCE = 4;
/** Number of resources in the workload `rare`. So many that each is untouched for seconds. */
const MANY = 30;
/** Time limit for events that certainly happen. It is long, for slow machines. */
const PATIENCE_MS = 60_000;

/**
 * The proxies of one half of the clients, a group. They can cut this half alone off from a server.
 */
export interface Doors {
  /** Before each server of the locks: Redis nodes, members, or the S3 server of S3 locks. */
  readonly nodes: readonly TcpProxy[];
  readonly s3: TcpProxy;
  readonly postgres: TcpProxy;
}

/** A client process, and the group whose doors it uses. */
export interface Client {
  readonly name: string;
  readonly group: number;
  readonly worker: WorkerProcess;
  readonly clock: MovableClock | undefined;
}

interface Started extends Client {
  /** Resolves when the client begins its rounds, or has ended. */
  readonly begun: Promise<unknown>;
}

/** A lock node under the name that all clients give it. A failover gives it another server. */
export interface Node {
  readonly name: string;
  server: LocalRedisNode;
}

interface Servers {
  readonly nodes: readonly Node[];
  readonly members: readonly Member[];
  /** A server without data that does not run. The next failover makes it a replica. */
  readonly spare: LocalRedisNode | undefined;
  readonly doors: readonly Doors[];
  readonly s3: S3Service;
  readonly postgres: LocalPostgres;
  readonly gateways: readonly Phoenix[];
  readonly programs: Readonly<Record<string, string>>;
}

/** Real servers, the proxies before them, and client processes. */
export class World implements AsyncDisposable {
  readonly recorder: Recorder;
  readonly nodes: readonly Node[];
  /** The members of etcd or ZooKeeper, if the locks are there. */
  readonly members: readonly Member[];
  readonly doors: readonly Doors[];
  /** The Postgres that is the primary at present. */
  postgres: LocalPostgres;
  /** One for each group, if the clients use gateways. */
  readonly gateways: readonly Phoenix[];
  readonly clients: Client[] = [];
  /** Names and versions of the servers. */
  readonly programs: Readonly<Record<string, string>>;
  readonly #options: WorldOptions;
  readonly #parts: AsyncDisposableStack;
  readonly #s3: S3Service;
  #spare: LocalRedisNode | undefined;
  #names = 0;
  /** Resolves after the last fault that makes a clock wrong, or that needs right clocks. */
  #clocks: Promise<unknown> = Promise.resolve();
  #moves = 0;
  /** The time of the last move, by `performance.now`. */
  #movedMs = Number.NEGATIVE_INFINITY;
  #failure: Error | null = null;

  static async start(options: WorldOptions): Promise<World> {
    await using parts = new AsyncDisposableStack();
    const { subject, hasMovableClocks } = options;
    const locks = await startLockServers(subject, hasMovableClocks, parts);
    const s3 = parts.use(await startS3());
    const postgres = parts.use(await startLocalPostgres());
    await prepare(s3, postgres.url);
    const doors = await Promise.all(
      Array.from({ length: GROUPS }, () => openDoors(subject, { locks, s3, postgres }, parts)),
    );
    const { spare, members } = locks;
    // Stops the spare server, which a failover starts as a replica.
    await spare?.kill();
    const gateways = await Promise.all(
      subject === 'gateway' ? doors.map((one) => startGateway(one, s3, postgres, parts)) : [],
    );
    const programs = { ...locks.programs, s3: s3.program, postgres: postgres.program };
    const nodes = locks.nodes.map((server, at) => ({ name: `n${at}`, server }));
    const folder = await mkdtemp(join(tmpdir(), 'fenced-torture-'));
    parts.defer(() => rm(folder, { recursive: true }));
    const recorder = new Recorder(folder);
    const world = new World(options, parts.move(), recorder, {
      nodes,
      members,
      spare,
      doors,
      s3,
      postgres,
      gateways,
      programs,
    });
    for (let at = 0; at < GROUPS * CLIENTS_PER_GROUP; at += 1) await world.startClient(at % GROUPS);
    return world;
  }

  private constructor(
    options: WorldOptions,
    parts: AsyncDisposableStack,
    recorder: Recorder,
    servers: Servers,
  ) {
    this.#options = options;
    this.#parts = parts;
    this.recorder = recorder;
    this.nodes = servers.nodes;
    this.members = servers.members;
    this.#spare = servers.spare;
    this.doors = servers.doors;
    this.#s3 = servers.s3;
    this.postgres = servers.postgres;
    this.gateways = servers.gateways;
    this.programs = servers.programs;
  }

  /** True if the locks are on the Redis nodes. */
  get usesNodes(): boolean {
    return isOnRedis(this.#options.subject);
  }

  /** The TTL of the leases. */
  get ttlMs(): number {
    return ttlMsOf(this.#options.subject);
  }

  /** Starts a client with a new name. */
  async startClient(group: number): Promise<Client> {
    const client = await this.#start(group, this.#options.workload);
    this.clients.push(client);
    return client;
  }

  /**
   * Starts an additional client, which no other fault hits. Kills it `lifeMs` after its first round
   * has begun.
   *
   * @param nodeCount configures it with the first `nodeCount` nodes only; all by default
   * @returns the name of the client
   */
  async visit(group: number, lifeMs: number, nodeCount?: number): Promise<string> {
    const { name, worker, begun } = await this.#start(group, this.#options.workload, nodeCount);
    await begun;
    await sleep(lifeMs);
    await worker.kill();
    return name;
  }

  /** Kills the S3 server, and restarts it with its data. Does nothing if it is not ours. */
  async crashS3(): Promise<void> {
    await this.#s3.crash?.();
  }

  /**
   * Runs a fault that makes a clock wrong, or that needs right clocks, after all others of this
   * kind.
   */
  aloneWithClocks<Result>(fault: () => Promise<Result>): Promise<Result> {
    const made = this.#clocks.then(fault);
    this.#clocks = made.catch(() => undefined);
    return made;
  }

  /** Kills a client, and starts another one in its place. */
  async replace(client: Client): Promise<void> {
    this.clients.splice(this.clients.indexOf(client), 1);
    await client.worker.kill();
    await this.startClient(client.group);
  }

  /** True for our locks, which must recover from every fault. */
  get mustRecover(): boolean {
    return OURS.includes(this.#options.subject);
  }

  /**
   * True if the clients name the nodes themselves. So the locks can move to another node set, and a
   * client can be configured with other nodes than all others.
   */
  get isMovable(): boolean {
    return isMovable(this.#options.subject);
  }

  /**
   * Moves the locks to another key prefix on the same servers.
   *
   * @param killedAfterMs time after which the first mover is killed, and a second one carries on;
   *   null for one mover
   * @param meanwhile called when the last mover has begun
   */
  async moveLocks(killedAfterMs: number | null, meanwhile: () => Promise<void>): Promise<void> {
    if (killedAfterMs !== null) {
      const first = await this.#startMover({ done: this.#moves, ahead: 1 });
      await sleep(killedAfterMs);
      await first.kill();
    }
    await this.#move({ done: this.#moves, ahead: 1 }, meanwhile);
    this.#moves += 1;
  }

  /**
   * Moves the locks by two movers. The first one ends before the first SEAL, when all nodes of the
   * next set wait for the move. From then on, new clients know only the next set.
   *
   * @param routine runs before the second mover starts
   */
  async moveEarly(routine: () => Promise<unknown>): Promise<void> {
    const moves = { done: this.#moves, ahead: 1 };
    await ended(await this.#startMover(moves, true));
    this.#moves += moves.ahead;
    await routine();
    await this.#move(moves);
  }

  async #move(moves: Moves, meanwhile?: () => Promise<void>): Promise<void> {
    const mover = await this.#startMover(moves);
    await meanwhile?.();
    await ended(mover);
    this.#movedMs = performance.now();
  }

  /**
   * Resolves when every node votes again, and all clients have noticed the last move. Callers then
   * take data away: the old node set must not lose it all as long as a client uses that set.
   */
  async untilVoting(): Promise<void> {
    if (!hasVotes(this.#options.subject)) return;
    const { subject } = this.#options;
    const nodes = connect(this.#nodeAddresses);
    try {
      await using locks = await openRedlock(subject, nodes, { done: this.#moves, ahead: 0 });
      await within(PATIENCE_MS, 'the votes of all nodes', async () => {
        const states = await locks.status();
        return states.every((node) => node.reachable && node.noVote === null);
      });
    } finally {
      for (const { client } of nodes) client.disconnect();
    }
    await sleep(Math.max(0, this.#movedMs + FOLLOWED_MS - performance.now()));
  }

  /** The operator's process of a move. It has begun. */
  async #startMover(moves: Moves, endsUnsealed = false): Promise<WorkerProcess> {
    const { subject } = this.#options;
    const config: MoverConfig = { subject, nodes: this.#nodeAddresses, moves, endsUnsealed };
    const { worker, begun } = await this.#startProcess('mover', config);
    await begun;
    return worker;
  }

  /** The nodes without the proxies. */
  get #nodeAddresses(): readonly NodeAddress[] {
    return this.nodes.map(({ name, server }) => ({ name, port: server.port }));
  }

  /** While `routine` runs, clients reach a writable replica in place of a node. */
  async showReplica(node: Node, lagMs: number, routine: () => Promise<void>): Promise<void> {
    const [master, replica] = [node.server, this.#spareNode];
    await this.#replicate(node, lagMs, async (client) => {
      await client.config('SET', 'replica-read-only', 'no');
      const doors = this.doors.map(({ nodes }) => nodes[this.nodes.indexOf(node)]);
      for (const door of doors) door?.redirect(replica);
      await routine();
      for (const door of doors) door?.redirect(master);
    });
    await replica.kill();
  }

  get #spareNode(): LocalRedisNode {
    if (!this.#spare) throw new Error('the locks are not on Redis nodes');
    return this.#spare;
  }

  /**
   * Starts a replica of a node. Calls `routine` when the replica has received nothing for `lagMs`.
   */
  async #replicate(
    { server }: Node,
    lagMs: number,
    routine: (replica: Redis) => Promise<void>,
  ): Promise<void> {
    await this.#spareNode.start('none');
    await using link = await TcpProxy.start(server);
    const client = new Redis(this.#spareNode.port);
    await client.replicaof(link.host, link.port);
    await within(PATIENCE_MS, 'the copy of the data', async () =>
      (await client.info('replication')).includes('master_link_status:up'),
    );
    link.swallow('toClient');
    await sleep(lagMs);
    await routine(client);
    client.disconnect();
  }

  /**
   * Replaces a node's server by a replica that has received nothing for `lagMs`. Ends the old
   * server.
   *
   * @param split runs before the old server ends, which until then serves the first half of the
   * clients
   */
  async failOver(node: Node, lagMs: number, split?: () => Promise<void>): Promise<void> {
    const [master, replica] = [node.server, this.#spareNode];
    await this.#replicate(node, lagMs, async (client) => {
      if (!split) await master.kill();
      await client.replicaof('NO', 'ONE');
    });
    const [first, ...others] = this.doors.map(({ nodes }) => nodes[this.nodes.indexOf(node)]);
    for (const door of others) door?.redirect(replica);
    node.server = replica;
    if (split) {
      await split();
      await master.kill();
    }
    first?.redirect(replica);
    this.#spare = master;
  }

  /**
   * Cuts the clients off from the primary, and lets a standby take its place. The standby is
   * synchronous, so it has all acknowledged writes, unless the subject is `postgres-async`.
   *
   * @param lagMs time for which an asynchronous standby has received nothing
   */
  async failOverPostgres(lagMs: number): Promise<void> {
    const primary = this.postgres;
    await using link = await TcpProxy.start(upstreamOf(primary.url));
    const standby = this.#parts.use(await primary.startStandby(link));
    const [before, after] = [primary, standby].map(({ url }) => {
      const pool = new pg.Pool({ connectionString: url });
      pool.on('error', () => undefined);
      return pool;
    });
    if (!before || !after) throw new Error('a failover needs two servers');
    if (this.#options.subject === ASYNCHRONOUS) link.swallow('toClient');
    else {
      await before.query(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`);
      await before.query('SELECT pg_reload_conf()');
      await within(PATIENCE_MS, 'a synchronous standby', async () => {
        const { rows } = await before.query('SELECT sync_state FROM pg_stat_replication');
        return rows[0]?.sync_state === 'sync';
      });
      // This commit waits until the standby has it, and so all earlier commits.
      await before.query("SELECT pg_logical_emit_message(true, 'failover', '')");
    }
    await sleep(lagMs);
    for (const { postgres } of this.doors) postgres.shut();
    await after.query('SELECT pg_promote()');
    for (const { postgres } of this.doors) {
      postgres.redirect(upstreamOf(standby.url));
      postgres.accept();
    }
    this.postgres = standby;
    await Promise.all([before.end(), after.end()]);
  }

  /** Lets all clients end their rounds. Then a new client reads every object. */
  async finish(): Promise<void> {
    const ended = this.clients.map(({ worker }) => worker.kill('SIGTERM'));
    await Promise.all(ended);
    await (await this.#start(0, 'final')).worker.exited;
    if (this.#failure) throw this.#failure;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.disposeAsync();
  }

  /** @param nodeCount as for `visit` */
  async #start(group: number, workload: string, nodeCount?: number): Promise<Started> {
    this.#names += 1;
    const name = workload === 'final' ? workload : `c${this.#names}`;
    const doors = this.doors[group];
    if (!doors) throw new Error(`there is no group ${group}`);
    const clock = this.#options.hasMovableClocks ? await MovableClock.start() : undefined;
    if (clock) this.#parts.use(clock);
    const { threads } = this.#options;
    const many = Math.ceil((GROUPS * CLIENTS_PER_GROUP * threads) / THREADS_PER_RESOURCE);
    const resources = this.#options.workload === 'rare' ? MANY : many;
    const config: ClientConfig = {
      ...this.#options,
      name,
      workload,
      ...this.recorder.open(name),
      resources: Array.from({ length: resources }, (_, at) => `r${at}`),
      nodes: this.nodes
        .slice(0, nodeCount)
        .map((node, at) => ({ name: node.name, port: doors.nodes[at]?.port ?? 0 })),
      members: this.members.map((_, at) => `${doors.nodes[at]?.host}:${doors.nodes[at]?.port}`),
      ...addressesOf(doors, this.#s3, this.postgres),
      moves: { done: this.#moves, ahead: this.isMovable && !nodeCount ? MOVES_AHEAD : 0 },
      ...(this.gateways[group] && { gatewayUrl: this.gateways[group].url }),
    };
    const { worker, begun } = await this.#startProcess('client', config, clock?.env);
    void worker.exited.then(({ code }) => {
      if (code) this.#failure ??= new Error(`client ${name} failed: ${worker.stderr}`);
    });
    return { name, group, worker, clock, begun };
  }

  /** Starts a process that prints a line when it begins. */
  async #startProcess(
    program: 'client' | 'mover',
    config: ClientConfig | MoverConfig,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Pick<Started, 'worker' | 'begun'>> {
    const { promise: line, resolve } = Promise.withResolvers<void>();
    const worker = await WorkerProcess.start(new URL(`./${program}.ts`, import.meta.url), {
      args: [JSON.stringify(config)],
      env,
      onLine: () => resolve(),
    });
    this.#parts.use(worker);
    return { worker, begun: Promise.race([line, worker.exited]) };
  }
}

/** Resolves when a process of a move has done its part. */
async function ended(mover: WorkerProcess): Promise<void> {
  const exit = await Promise.race([mover.exited, sleep(PATIENCE_MS, null, { ref: false })]);
  if (exit?.code !== 0) throw new Error(`the move did not end: ${mover.stderr}`);
}

/** Opens proxies before all servers. */
async function openDoors(
  subject: string,
  { locks, ...stores }: { locks: LockServers; s3: S3Address; postgres: LocalPostgres },
  parts: AsyncDisposableStack,
): Promise<Doors> {
  const open = async (address: string): Promise<TcpProxy> =>
    parts.use(await TcpProxy.start(upstreamOf(address)));
  const s3 = await open(stores.s3.endpoint);
  const nodes = subject === 's3' ? [s3] : await openLockDoors(locks, parts);
  return { nodes, s3, postgres: await open(stores.postgres.url) };
}

/** Returns the addresses of the stores, through the proxies of a group. */
function addressesOf(doors: Doors, s3: S3Address, postgres: LocalPostgres) {
  const { region, accessKeyId, secretAccessKey } = s3;
  const postgresUrl = new URL(postgres.url);
  postgresUrl.host = `${doors.postgres.host}:${doors.postgres.port}`;
  const endpoint = `http://${doors.s3.host}:${doors.s3.port}`;
  return { s3: { endpoint, region, accessKeyId, secretAccessKey }, postgresUrl: postgresUrl.href };
}

/** Starts the gateway of a group, which uses the proxies of the group. */
async function startGateway(
  doors: Doors,
  s3: S3Address,
  postgres: LocalPostgres,
  parts: AsyncDisposableStack,
): Promise<Phoenix> {
  const { s3: address, postgresUrl } = addressesOf(doors, s3, postgres);
  const addresses = { redis: doors.nodes, s3: address.endpoint, postgres: postgresUrl };
  const places = { s3: address, keyPrefix: KEY_PREFIX, bucket: NAME, addresses };
  return parts.use(await Phoenix.start(await configFile(places, parts)));
}

async function prepare(s3: S3Address, postgresUrl: string): Promise<void> {
  const client = new S3Client({ ...s3, credentials: s3, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: NAME }));
  client.destroy();
  const pool = new pg.Pool({ connectionString: postgresUrl });
  pool.on('error', () => undefined);
  await new FencedPostgres({ pool }).install();
  await new PostgresLock({ pool }).install();
  await pool.query(`CREATE TABLE ${NAME} (name text PRIMARY KEY, value text)`);
  await pool.end();
}
