import * as z from 'zod';
import type { Binding } from './bindings.js';
import { bindings, credentials, type SigningSettings, signing } from './config-credentials.js';
import { ALWAYS, areDistinct, contents, given, isLoopback, urlOf } from './config-fields.js';
import type { KeysOptions } from './keys.js';
import type { RateLimitOptions } from './rate-limit.js';

/** A configuration that was found good: defaults filled in, secrets read from their files. */
export interface ResolvedConfig {
  readonly listen: {
    readonly host: string;
    readonly port: number;
    readonly trustedProxies: readonly string[];
  };
  /** Left out where the gateway's own port serves operations, too. */
  readonly operations?: { readonly host: string; readonly port: number };
  readonly redis: {
    readonly nodes: readonly {
      readonly name: string;
      readonly url: string;
      readonly durable: boolean;
    }[];
    readonly keyPrefix?: string;
    readonly maxTtlMs: number;
  };
  readonly objects?: {
    readonly bucket: string;
    readonly prefix: string;
    readonly endpoint?: string;
    readonly region?: string;
    readonly forcePathStyle: boolean;
    /** Left out where the AWS SDK is to find them by itself. */
    readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
  };
  readonly records?: { readonly url: string; readonly connectionsMax: number };
  readonly credentials: KeysOptions;
  readonly signing?: SigningSettings;
  readonly bindings: readonly Binding[];
  readonly rate: { readonly perKey: RateLimitOptions; readonly perAddress: RateLimitOptions };
  readonly limits: {
    readonly bodyBytesMax: number;
    readonly recordBytesMax: number;
    readonly headerBytesMax: number;
    readonly connectionsMax: number;
    readonly connectionsPerAddressMax?: number;
    readonly requestsMax: number;
    readonly waitsMax: number;
    readonly uploadsMax: number;
    readonly bytesPerSecondMin: number;
    readonly storeTimeoutMs: number;
    readonly waitMsMax: number;
    readonly headersTimeoutMs: number;
    readonly idleTimeoutMs: number;
    readonly drainDelayMs: number;
    readonly graceMs: number;
  };
  readonly log: { readonly level: LogLevel };
}

const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const GIB = 2 ** 30;
const MIB = 2 ** 20;

const redisUrl = urlOf(['redis:', 'rediss:']);
const postgresUrl = urlOf(['postgres:', 'postgresql:']);

const node = z
  .strictObject({
    name: z.string().min(1).describe('As all programs name the node.'),
    url: redisUrl.exactOptional().describe('`redis://user:password@host:port`, or `rediss://`.'),
    urlFile: contents.pipe(redisUrl).exactOptional().describe('A file with the URL.'),
    durable: z
      .boolean()
      .default(false)
      .describe('The node loses nothing it has acknowledged (`appendfsync always`).'),
  })
  .refine((fields) => given(fields, 'url', 'urlFile') === 1, {
    error: 'needs either url or urlFile',
    ...ALWAYS,
  })
  .transform(({ url, urlFile, ...rest }) => ({ ...rest, url: url ?? urlFile ?? '' }));

const redis = z
  .strictObject({
    nodes: z
      .array(node)
      .min(1)
      .max(15)
      .describe(
        'The Redis nodes of the lock, each `{name, url}` or `{name, urlFile}`. `durable: true` says that the node loses nothing that it has acknowledged, so that it votes at once after a restart.',
      ),
    keyPrefix: z
      .string()
      .exactOptional()
      .describe("As all programs have it; `Redlock`'s own by default."),
    maxTtlMs: z
      .int()
      .min(1)
      .max(86_400_000)
      .default(60_000)
      .describe('The longest lease; all clients of the nodes must agree.'),
  })
  .refine((fields) => areDistinct(Object(fields).nodes, 'name'), {
    error: 'two nodes have one name',
    ...ALWAYS,
  });

const objects = z
  .strictObject({
    bucket: z.string().min(1).describe('The bucket, which must exist.'),
    prefix: z
      .string()
      .default('')
      .describe('The beginning of all keys in the bucket; callers leave it out.'),
    endpoint: urlOf(['http:', 'https:']).exactOptional().describe('The S3 server; AWS by default.'),
    region: z
      .string()
      .min(1)
      .exactOptional()
      .describe("By default that of the AWS SDK's environment."),
    forcePathStyle: z
      .boolean()
      .default(false)
      .describe('The bucket is in the path and not in the host name: most servers but AWS.'),
    accessKeyId: z
      .string()
      .min(1)
      .exactOptional()
      .describe('With a secret. Without both the AWS SDK looks where it always does.'),
    secretAccessKey: z.string().min(1).exactOptional().describe('The secret.'),
    secretAccessKeyFile: contents.exactOptional().describe('A file with the secret.'),
  })
  .refine((fields) => given(fields, 'secretAccessKey', 'secretAccessKeyFile') <= 1, {
    error: 'has both secretAccessKey and secretAccessKeyFile',
    ...ALWAYS,
  })
  .refine(
    (fields) =>
      given(fields, 'accessKeyId') ===
      Math.min(1, given(fields, 'secretAccessKey', 'secretAccessKeyFile')),
    { error: 'needs both accessKeyId and a secret, or neither', ...ALWAYS },
  )
  .transform(({ accessKeyId, secretAccessKey, secretAccessKeyFile, ...rest }) => {
    const secret = secretAccessKey ?? secretAccessKeyFile;
    if (accessKeyId === undefined || secret === undefined) return rest;
    return { ...rest, credentials: { accessKeyId, secretAccessKey: secret } };
  });

const records = z
  .strictObject({
    url: postgresUrl.exactOptional().describe('`postgres://user:password@host:port/database`.'),
    urlFile: contents.pipe(postgresUrl).exactOptional().describe('A file with the URL.'),
    connectionsMax: z
      .int()
      .min(1)
      .max(1_000)
      .default(20)
      .describe('The largest number of open connections.'),
  })
  .refine((fields) => given(fields, 'url', 'urlFile') === 1, {
    error: 'needs either url or urlFile',
    ...ALWAYS,
  })
  .transform(({ url, urlFile, ...rest }) => ({ ...rest, url: url ?? urlFile ?? '' }));

function rate(perSecond: number, burst: number) {
  return z
    .strictObject({
      perSecond: z
        .int()
        .min(1)
        .max(1_000_000)
        .default(perSecond)
        .describe('Requests a second in the long run.'),
      burst: z
        .int()
        .min(1)
        .max(1_000_000)
        .default(burst)
        .describe('The largest burst of requests.'),
    })
    .prefault({});
}

function bounded(min: number, max: number, fallback: number, description: string) {
  return z.int().min(min).max(max).default(fallback).describe(description);
}

const limits = z.strictObject({
  bodyBytesMax: bounded(0, 5_000 * GIB, 5 * GIB, 'The largest object.'),
  recordBytesMax: bounded(1, 256 * MIB, MIB, 'The largest record, and any other JSON.'),
  headerBytesMax: bounded(1_024, MIB, 16_384, 'All headers of a request together.'),
  connectionsMax: bounded(1, 1_000_000, 10_000, 'Connections from callers.'),
  connectionsPerAddressMax: z
    .int()
    .min(1)
    .max(1_000_000)
    .exactOptional()
    .describe(
      'Connections from one address. By default an address never uses more than it leaves free for others.',
    ),
  requestsMax: bounded(
    1,
    100_000,
    1_000,
    'Requests that are worked on at once. A key never uses more than it leaves free for others.',
  ),
  waitsMax: bounded(
    1,
    100_000,
    4_000,
    'Requests that wait for a lease at once, shared in the same way. Keep it below `connectionsMax`.',
  ),
  uploadsMax: bounded(
    1,
    10_000,
    64,
    'Objects that are written at once, shared in the same way. Each has at most six parts of 8 MiB in memory.',
  ),
  storeTimeoutMs: bounded(
    100,
    600_000,
    50_000,
    'The time that Redis, S3 and Postgres have for their part of a request, besides a wait for a lease. Keep it below the time limit of the load balancer.',
  ),
  waitMsMax: bounded(0, 600_000, 30_000, 'The longest wait of a request for a lease.'),
  headersTimeoutMs: bounded(
    100,
    600_000,
    10_000,
    'The time for the headers of a request to arrive.',
  ),
  bytesPerSecondMin: bounded(
    0,
    2 ** 30,
    16_384,
    'The bytes that a client must send or read in a second, on average over `idleTimeoutMs`; 0 for no limit.',
  ),
  idleTimeoutMs: bounded(
    100,
    3_600_000,
    30_000,
    'The time in which a client must send or read the bytes that `bytesPerSecondMin` asks for, or the rest.',
  ),
  drainDelayMs: bounded(
    0,
    600_000,
    0,
    'The time after SIGTERM in which requests are still taken, while readiness fails and load balancers notice.',
  ),
  graceMs: bounded(0, 3_600_000, 10_000, 'The time for running requests to end after that.'),
});

const listen = z.strictObject({
  host: z.string().min(1).default('127.0.0.1').describe('The address to listen on; `::` for all.'),
  port: bounded(0, 65_535, 8_080, 'The port; 0 for any that is free.'),
  trustedProxies: z
    .array(z.union([z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()]))
    .default([])
    .describe('Addresses or networks of proxies whose `X-Forwarded-For` is believed.'),
});

const operations = z.strictObject({
  host: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address to listen on for `/livez`, `/readyz` and `/metrics`; `::` for all.'),
  port: bounded(
    0,
    65_535,
    9_090,
    'The port of these; 0 for any that is free. With this section, `listen.port` does not serve them.',
  ),
});

export const configSchema: z.ZodType<ResolvedConfig> = z
  .strictObject({
    listen: listen.prefault({}),
    operations: operations.exactOptional(),
    redis,
    objects: objects.exactOptional(),
    records: records.exactOptional(),
    credentials: credentials.prefault({}),
    signing: signing.exactOptional(),
    bindings,
    rate: z.strictObject({ perKey: rate(1_000, 2_000), perAddress: rate(10, 50) }).prefault({}),
    limits: limits.prefault({}),
    log: z
      .strictObject({ level: z.enum(LOG_LEVELS).default('info').describe(LOG_LEVELS.join(', ')) })
      .prefault({}),
  })
  .refine(isReachableOnlyByTheKnown, {
    path: ['listen', 'host'],
    error:
      'must be an address of this machine alone, such as 127.0.0.1, as long as no credentials are configured',
    ...ALWAYS,
  });

/** Asked with whatever was given: parts of it may be missing or of another type. */
function isReachableOnlyByTheKnown({ listen, credentials }: Partial<ResolvedConfig>): boolean {
  const { keys = [], jwt } = Object(credentials) as KeysOptions;
  if (keys.length > 0 || jwt !== undefined) return true;
  const host: unknown = Object(listen).host;
  return typeof host !== 'string' || isLoopback(host);
}
