import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { FencedPostgres } from '@fenced/store/postgres';
import {
  type LocalRedisNode,
  type S3Address,
  startLocalRedis,
  startPostgres,
  startS3,
  TcpProxy,
  WorkerProcess,
} from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';
import { within } from '../lock/harness/redlock-world.ts';
import type { ClientConfig } from './client.ts';
import { Recorder } from './history.ts';
import { TTL_MS } from './locks.ts';
import { NAME } from './stores.ts';

export interface WorldOptions {
  readonly seed: number;
  readonly workload: string;
  readonly subject: string;
}

const NODES = 3;
const GROUPS = 2;
const CLIENTS_PER_GROUP = 3;
const RESOURCES = ['r0', 'r1', 'r2'];
/** Time limit for what certainly happens, on a machine of any speed. */
const PATIENCE_MS = 60_000;

/** The proxies of one half of the clients, which can be cut off from servers by themselves. */
export interface Doors {
  readonly nodes: readonly TcpProxy[];
  readonly s3: TcpProxy;
  readonly postgres: TcpProxy;
}

/** A client process, and the group whose doors it uses. */
export interface Client {
  readonly name: string;
  readonly group: number;
  readonly worker: WorkerProcess;
}

/** Real servers, the proxies before them, and client processes. */
export class World implements AsyncDisposable {
  readonly recorder: Recorder = new Recorder();
  readonly nodes: readonly LocalRedisNode[];
  readonly doors: readonly Doors[];
  readonly clients: Client[] = [];
  readonly #options: WorldOptions;
  readonly #parts: AsyncDisposableStack;
  readonly #s3: S3Address;
  readonly #postgresUrl: string;
  #names = 0;
  #failure: Error | null = null;

  static async start(options: WorldOptions): Promise<World> {
    await using parts = new AsyncDisposableStack();
    const { nodes } = parts.use(await startLocalRedis(NODES, { persistence: 'aof' }));
    const s3 = parts.use(await startS3());
    const postgres = parts.use(await startPostgres());
    await prepare(s3, postgres.url);
    const open = async (address: string): Promise<TcpProxy> => {
      const { hostname, port } = new URL(address);
      return parts.use(await TcpProxy.start({ host: hostname, port: Number(port) }));
    };
    const doors = await Promise.all(
      Array.from({ length: GROUPS }, async () => ({
        nodes: await Promise.all(nodes.map(({ url }) => open(url))),
        s3: await open(s3.endpoint),
        postgres: await open(postgres.url),
      })),
    );
    const world = new World(options, parts.move(), { nodes, doors, s3, postgresUrl: postgres.url });
    for (let at = 0; at < GROUPS * CLIENTS_PER_GROUP; at += 1) await world.startClient(at % GROUPS);
    return world;
  }

  private constructor(
    options: WorldOptions,
    parts: AsyncDisposableStack,
    servers: {
      readonly nodes: readonly LocalRedisNode[];
      readonly doors: readonly Doors[];
      readonly s3: S3Address;
      readonly postgresUrl: string;
    },
  ) {
    this.#options = options;
    this.#parts = parts;
    this.nodes = servers.nodes;
    this.doors = servers.doors;
    this.#s3 = servers.s3;
    this.#postgresUrl = servers.postgresUrl;
  }

  /** Starts a client with a new name. */
  async startClient(group: number): Promise<Client> {
    const client = await this.#start(group, this.#options.workload);
    this.clients.push(client);
    return client;
  }

  /** Kills a client, and starts another one in its place. */
  async replace(client: Client): Promise<void> {
    this.clients.splice(this.clients.indexOf(client), 1);
    await client.worker.kill();
    await this.startClient(client.group);
  }

  /** Resolves when every node votes again. A foreign lock has no such votes. */
  async untilVoting(): Promise<void> {
    if (this.#options.subject === 'redlock5') return;
    const clients = this.nodes.map(({ port }) => new Redis(port, { retryStrategy: () => 20 }));
    for (const client of clients) client.on('error', () => {});
    const nodes = this.nodes.map(({ name }, at) => ({ name, client: clients[at] as Redis }));
    await using onlooker = new Redlock({ nodes, maxTtlMs: TTL_MS });
    try {
      await within(PATIENCE_MS, 'the votes of all nodes', async () =>
        (await onlooker.status()).every((node) => node.reachable && node.noVote === null),
      );
    } finally {
      for (const client of clients) client.disconnect();
    }
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

  async #start(group: number, workload: string): Promise<Client> {
    this.#names += 1;
    const name = workload === 'final' ? workload : `c${this.#names}`;
    const doors = this.doors[group];
    if (!doors) throw new Error(`there is no group ${group}`);
    const postgresUrl = new URL(this.#postgresUrl);
    postgresUrl.host = `${doors.postgres.host}:${doors.postgres.port}`;
    const { region, accessKeyId, secretAccessKey } = this.#s3;
    const endpoint = `http://${doors.s3.host}:${doors.s3.port}`;
    const config: ClientConfig = {
      ...{ ...this.#options, name, workload, resources: RESOURCES },
      nodes: this.nodes.map((node, at) => ({ name: node.name, port: doors.nodes[at]?.port ?? 0 })),
      s3: { endpoint, region, accessKeyId, secretAccessKey },
      postgresUrl: postgresUrl.href,
    };
    const worker = await WorkerProcess.start(new URL('./client.ts', import.meta.url), {
      args: [JSON.stringify(config)],
      onLine: (line) => this.recorder.add(name, line),
    });
    this.#parts.use(worker);
    void worker.exited.then(({ code }) => {
      if (code) this.#failure ??= new Error(`client ${name} failed: ${worker.stderr}`);
    });
    return { name, group, worker };
  }
}

async function prepare(s3: S3Address, postgresUrl: string): Promise<void> {
  const client = new S3Client({ ...s3, credentials: s3, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: NAME }));
  client.destroy();
  const pool = new pg.Pool({ connectionString: postgresUrl });
  await new FencedPostgres({ pool }).install();
  await pool.query(`CREATE TABLE ${NAME} (name text PRIMARY KEY, value text)`);
  await pool.end();
}
