import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import {
  createGateway,
  type EndedRequest,
  type GatewayOptions,
  type GatewayServer,
  type ServerOptions,
  serveGateway,
} from '@fenced/gateway';
import { Redlock } from '@fenced/lock';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import {
  type LocalPostgres,
  type LocalRedisService,
  type S3Service,
  startLocalPostgres,
  startLocalRedis,
  startS3,
} from '@fenced/testbed';
import { Redis } from 'ioredis';
import pg from 'pg';

/** The addresses of a gateway's dependencies: the servers themselves, or proxies before them. */
export interface Addresses {
  readonly redis: readonly { readonly host: string; readonly port: number }[];
  readonly s3: string;
  readonly postgres: string;
}

/** A gateway of this process that listens, and a list of its ended requests. */
export interface Front extends AsyncDisposable {
  readonly url: string;
  readonly app: ReturnType<typeof createGateway>;
  readonly server: GatewayServer;
  readonly ended: EndedRequest[];
  readonly pool: pg.Pool;
  readonly objects: FencedS3;
}

/** Real servers, and gateways before them that know nothing of each other. */
export class GatewayWorld implements AsyncDisposable {
  readonly redis: LocalRedisService;
  readonly s3: S3Service;
  readonly postgres: LocalPostgres;
  readonly bucket: string = `gateway-${randomUUID()}`;
  readonly keyPrefix: string = `{${randomUUID()}}:`;
  readonly #parts: AsyncDisposableStack;
  #names = 0;

  static async start(): Promise<GatewayWorld> {
    await using parts = new AsyncDisposableStack();
    const redis = parts.use(await startLocalRedis(3));
    const s3 = parts.use(await startS3());
    const postgres = parts.use(await startLocalPostgres());
    const world = new GatewayWorld({ redis, s3, postgres }, parts.move());
    const client = world.s3Client(s3.endpoint);
    await client.send(new CreateBucketCommand({ Bucket: world.bucket }));
    client.destroy();
    const pool = new pg.Pool({ connectionString: postgres.url, max: 1 });
    pool.on('error', () => undefined);
    await new FencedPostgres({ pool }).install();
    await pool.end();
    return world;
  }

  private constructor(
    services: Pick<GatewayWorld, 'redis' | 's3' | 'postgres'>,
    parts: AsyncDisposableStack,
  ) {
    this.redis = services.redis;
    this.s3 = services.s3;
    this.postgres = services.postgres;
    this.#parts = parts;
  }

  get addresses(): Addresses {
    const { s3, postgres } = this;
    return { redis: this.redis.nodes, s3: s3.endpoint, postgres: postgres.url };
  }

  /** Returns a new name for a key or a resource, with characters that a URL must encode. */
  newName(): string {
    this.#names += 1;
    return `it/is ${this.#names} ä`;
  }

  s3Client(endpoint: string): S3Client {
    const { region } = this.s3;
    return new S3Client({ endpoint, region, credentials: this.s3, forcePathStyle: true });
  }

  /** One more gateway, with connections of its own. */
  async open(
    options: Partial<GatewayOptions> & { readonly server?: ServerOptions } = {},
    addresses: Addresses = this.addresses,
  ): Promise<Front> {
    await using parts = new AsyncDisposableStack();
    const nodes = addresses.redis.map(({ host, port }, at) => {
      const client = new Redis({ host, port, retryStrategy: () => 50 });
      client.on('error', () => undefined);
      parts.defer(() => client.disconnect());
      return { name: `n${at}`, client };
    });
    const redlock = new Redlock({ nodes, keyPrefix: this.keyPrefix });
    const client = this.s3Client(addresses.s3);
    parts.defer(() => client.destroy());
    const objects = new FencedS3({ client, bucket: this.bucket, requestTimeoutMs: 2_000 });
    const pool = new pg.Pool({ connectionString: addresses.postgres, max: 20 });
    pool.on('error', () => undefined);
    parts.defer(() => pool.end());
    const records = new FencedPostgres({ pool, holdMs: 3_000 });
    const ended: EndedRequest[] = [];
    const { server: settings, ...given } = options;
    const limits = { graceMs: 2_000, ...options.limits };
    const app = createGateway({
      lock: redlock,
      maxTtlMs: 60_000,
      databaseConnectionsMax: 20,
      objects,
      records,
      onRequest: (request) => ended.push(request),
      ...given,
      limits,
    });
    const server = await serveGateway(app, { port: 0, ...settings });
    parts.defer(async () => void (await server.drain()));
    const all = parts.move();
    return {
      app,
      url: server.url,
      server,
      ended,
      pool,
      objects,
      [Symbol.asyncDispose]: () => all.disposeAsync(),
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#parts.disposeAsync();
  }
}

/** Encodes a name for the path of a URL. */
export function inPath(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}

/** The answer that granted a lease. */
export interface Granted {
  readonly resource: string;
  readonly leaseId: string;
  readonly token: string;
  readonly remainingMs: number;
}

export async function acquire(
  url: string,
  resource: string,
  options: { readonly ttlMs?: number; readonly waitMs?: number } = {},
): Promise<Granted> {
  const response = await post(`${url}/v1/leases/${inPath(resource)}`, {
    ttlMs: 10_000,
    ...options,
  });
  if (response.status !== 201) throw new Error(`no lease: ${await response.text()}`);
  return (await response.json()) as Granted;
}

export function post(url: string, body: unknown, method = 'POST'): Promise<Response> {
  return fetch(url, {
    method,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
}

/** The members of a problem document. */
export async function problemOf(response: Response): Promise<Record<string, unknown>> {
  const type = response.headers.get('content-type');
  if (type !== 'application/problem+json') throw new Error(`${response.status} is ${type}`);
  return (await response.json()) as Record<string, unknown>;
}

/** Limited by the time limit of the test. */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await sleep(5);
}
