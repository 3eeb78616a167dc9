import { spawn } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import {
  type PostgresService,
  type RedisService,
  type S3Service,
  startPostgres,
  startRedis,
  startS3,
} from '@fenced/testbed';
import autocannon, { type Options, type Request } from 'autocannon';
import { Redis } from 'ioredis';
import pg from 'pg';
import { compare, type Row, type Subject } from './measure.ts';

const WORKERS = 8;
const SECONDS = 5;
const BODY = randomBytes(1024);
const RECORD = { text: randomBytes(384).toString('hex') };
const KEY = randomBytes(32).toString('hex');
const LEASE = JSON.stringify({ ttlMs: 10_000 });
/** All writes carry the token of this lease. */
const RESOURCE = 'bench';

interface Services {
  readonly redis: RedisService;
  readonly s3: S3Service;
  readonly postgres: PostgresService;
  readonly bucket: string;
}

/** How much slower is the same work through `fenced gateway`, with API keys and signed tokens? */
export async function benchGateway(): Promise<Row[]> {
  await using redis = await startRedis(3);
  await using s3 = await startS3();
  await using postgres = await startPostgres();
  const bucket = `fenced-bench-${randomUUID()}`;
  const services = { redis, s3, postgres, bucket };
  await using library = await openLibrary(services);
  await using gateway = await startGateway(services);
  const token = await gateway.token();
  return [
    ...(await beside(
      { name: 'acquire and release', run: (worker) => library.cycle(worker) },
      // The latency is that of one request. To acquire and release takes two.
      { name: 'POST and DELETE of a lease', parts: 2, script: leaseCycle },
      gateway.url,
    )),
    ...(await beside(
      { name: 'put of an object, 1 KiB', run: (worker) => library.putObject(worker) },
      { name: 'PUT of an object', parts: 1, script: put('objects/bench', BODY, token) },
      gateway.url,
    )),
    ...(await beside(
      { name: 'put of a record, 1 KiB', run: (worker) => library.putRecord(worker) },
      {
        name: 'PUT of a record',
        parts: 1,
        script: put('records/bench', JSON.stringify(RECORD), token),
      },
      gateway.url,
    )),
  ];
}

async function openLibrary({ redis, s3, postgres, bucket }: Services) {
  await using parts = new AsyncDisposableStack();
  const nodes = redis.nodes.map(({ name, url }) => {
    const client = new Redis(url);
    parts.defer(() => client.disconnect());
    return { name, client };
  });
  const redlock = new Redlock({ nodes });
  const { endpoint, region } = s3;
  const client = new S3Client({ endpoint, region, credentials: s3, forcePathStyle: true });
  parts.defer(() => client.destroy());
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const documents = new FencedS3({ client, bucket });
  const pool = new pg.Pool({ connectionString: postgres.url, max: 20 });
  // When the server stops, it closes the pool's idle connections.
  pool.on('error', () => undefined);
  parts.defer(() => pool.end());
  const store = new FencedPostgres({ pool });
  await store.install();
  const records = store.records('direct');
  const all = parts.move();
  return {
    cycle: async (worker: number) =>
      (await redlock.acquire(`direct/${worker}`, { ttlMs: 10_000 })).release(),
    putObject: (worker: number) => documents.put(`direct/${worker}`, BODY, { token: 33 }),
    putRecord: (worker: number) => records.put(`${worker}`, RECORD, { token: 33 }),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

async function startGateway({ redis, s3, postgres, bucket }: Services) {
  const sha256 = createHash('sha256').update(KEY).digest('hex');
  const verbs = ['lease', 'write'];
  const prefixes = ['leases', 'objects', 'records'];
  const settings = {
    LISTEN_PORT: '0',
    REDIS_NODES: JSON.stringify(redis.nodes.map(({ name, url }) => ({ name, url }))),
    OBJECTS_BUCKET: bucket,
    OBJECTS_ENDPOINT: s3.endpoint,
    OBJECTS_REGION: s3.region,
    OBJECTS_FORCE_PATH_STYLE: 'true',
    OBJECTS_ACCESS_KEY_ID: s3.accessKeyId,
    OBJECTS_SECRET_ACCESS_KEY: s3.secretAccessKey,
    RECORDS_URL: postgres.url,
    CREDENTIALS_KEYS: JSON.stringify([{ name: 'bench', sha256, verbs, prefixes }]),
    SIGNING_KEYS: JSON.stringify([{ id: 'k1', secret: randomBytes(32).toString('base64') }]),
    // One token serves all writes.
    BINDINGS: JSON.stringify([
      { keys: 'objects/*', lease: RESOURCE },
      { keys: 'records/*', lease: RESOURCE },
    ]),
    RATE_PER_KEY_PER_SECOND: '1000000',
    RATE_PER_KEY_BURST: '1000000',
  };
  const program = fileURLToPath(new URL('../packages/fenced/bin/fenced.js', import.meta.url));
  const variables = Object.entries(settings).map(([name, value]) => [
    `FENCED_GATEWAY_${name}`,
    value,
  ]);
  const child = spawn(process.execPath, [program, 'gateway'], {
    env: { ...process.env, ...Object.fromEntries(variables) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  // The gateway logs every request. All lines are read, as a platform does.
  createInterface(child.stdout).on('line', (line) => {
    if (line.includes('"msg":"listening"')) resolve((JSON.parse(line) as { url: string }).url);
  });
  exited.then(() => reject(new Error('the gateway ended')));
  const url = await promise;
  return {
    url,
    token: async (): Promise<string> => {
      const headers = { ...AUTHORIZED, 'Content-Type': 'application/json' };
      const address = `${url}/v1/leases/${RESOURCE}`;
      const answer = await fetch(address, { method: 'POST', headers, body: LEASE });
      return ((await answer.json()) as { token: string }).token;
    },
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await exited;
    },
  };
}

const AUTHORIZED = { Authorization: `Bearer ${KEY}` };

/** Returns the requests that one connection repeats. Each connection has its own `name`. */
type Script = (name: string) => Request[];

/** State that autocannon keeps between the requests of a script. */
interface Context {
  leaseId?: string;
}

const leaseCycle: Script = (name) => [
  {
    method: 'POST',
    path: `/v1/leases/${name}`,
    body: LEASE,
    headers: { ...AUTHORIZED, 'Content-Type': 'application/json' },
    onResponse: (_, body, context) => {
      (context as Context).leaseId = (JSON.parse(body) as { leaseId: string }).leaseId;
    },
  },
  {
    method: 'DELETE',
    headers: AUTHORIZED,
    setupRequest: (request, context) => ({
      ...request,
      path: `/v1/leases/${name}/${(context as Context).leaseId}`,
    }),
  },
];

function put(path: string, body: string | Buffer, token: string): Script {
  const headers = { ...AUTHORIZED, 'Content-Type': 'application/json', 'Fencing-Token': token };
  return (name) => [{ method: 'PUT', path: `/v1/${path}/${name}`, headers, body }];
}

/** @param over `parts` is the number of requests for one call of the library */
async function beside(
  direct: Subject,
  over: { readonly name: string; readonly parts: number; readonly script: Script },
  url: string,
): Promise<Row[]> {
  const baseline = { ...direct, name: `${direct.name}, ${WORKERS} at once` };
  const [row] = await compare('gateway', [baseline], 50, { workers: WORKERS, rounds: 4 });
  if (row === undefined) throw new Error('no row was measured');
  const load: Options = {
    url,
    connections: WORKERS,
    setupClient: (client) => client.setRequests(over.script(randomUUID())),
  };
  await autocannon({ ...load, duration: 1 });
  const result = await autocannon({ ...load, duration: SECONDS });
  if (result.non2xx + result.errors + result.timeouts > 0)
    throw new Error(`${over.name}: ${result.non2xx} refused, ${result.errors} failed`);
  const perSecond = result['2xx'] / over.parts / result.duration;
  const ratio = Math.round((perSecond / row.perSecond) * 1_000) / 1_000;
  return [
    row,
    {
      bench: 'gateway',
      subject: `${over.name} through a gateway`,
      against: baseline.name,
      ratio,
      ratioRange: [ratio, ratio],
      ratioOf: 'perSecond',
      p50Ms: result.latency.p50,
      p99Ms: result.latency.p99,
      perSecond: Math.round(perSecond),
    },
  ];
}
