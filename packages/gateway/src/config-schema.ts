import * as z from 'zod';
import { bindings, credentials, signing } from './config-credentials.js';
import { ALWAYS, areDistinct, contents, given, isLoopback, urlOf } from './config-fields.js';
import type { CredentialsOptions } from './credentials.js';
import { bounded, limitsSchema } from './limits.js';

const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const redisUrl = urlOf(['redis:', 'rediss:']);
const postgresUrl = urlOf(['postgres:', 'postgresql:']);
const ONE_URL = { error: 'needs either url or urlFile', ...ALWAYS };

const node = z
  .strictObject({
    name: z.string().min(1).describe('The name, the same in all programs.'),
    url: redisUrl.exactOptional().describe('`redis://user:password@host:port`, or `rediss://`.'),
    urlFile: contents.pipe(redisUrl).exactOptional().describe('A file with the URL.'),
    durable: z
      .boolean()
      .default(false)
      .describe('The node loses nothing that it acknowledged (`appendfsync always`).'),
  })
  .refine((fields) => given(fields, 'url', 'urlFile') === 1, ONE_URL)
  .transform(({ url, urlFile, ...rest }) => ({ ...rest, url: url ?? urlFile ?? '' }));

const redis = z
  .strictObject({
    nodes: z
      .array(node)
      .min(1)
      .max(15)
      .describe(
        'The Redis nodes of the lock, each `{name, url}` or `{name, urlFile}`. `durable: true`: the node loses nothing that it acknowledged, so it votes at once after a restart.',
      ),
    keyPrefix: z
      .string()
      .exactOptional()
      .describe("The key prefix, the same in all programs. By default, `Redlock`'s own."),
    maxTtlMs: z
      .int()
      .min(1)
      .max(86_400_000)
      .exactOptional()
      .describe("The longest lease that a caller gets. By default, `Redlock`'s own: 60000."),
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
      .describe('The prefix of all keys in the bucket. Callers leave it out.'),
    endpoint: urlOf(['http:', 'https:']).exactOptional().describe('The S3 server; AWS by default.'),
    region: z
      .string()
      .min(1)
      .exactOptional()
      .describe("The region. By default, the one of the AWS SDK's environment."),
    forcePathStyle: z
      .boolean()
      .default(false)
      .describe(
        'The bucket is in the path, not in the host name. Most servers other than AWS need it.',
      ),
    accessKeyId: z
      .string()
      .min(1)
      .exactOptional()
      .describe('Needs a secret. Without both, the AWS SDK finds credentials by itself.'),
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
    const isGiven = accessKeyId !== undefined && secret !== undefined;
    return { ...rest, ...(isGiven && { credentials: { accessKeyId, secretAccessKey: secret } }) };
  });

const records = z
  .strictObject({
    url: postgresUrl.exactOptional().describe('`postgres://user:password@host:port/database`.'),
    urlFile: contents.pipe(postgresUrl).exactOptional().describe('A file with the URL.'),
    connectionsMax: bounded(1, 1_000, 20).describe('The largest number of open connections.'),
  })
  .refine((fields) => given(fields, 'url', 'urlFile') === 1, ONE_URL)
  .transform(({ url, urlFile, ...rest }) => ({ ...rest, url: url ?? urlFile ?? '' }));

function rate(perSecond: number, burst: number) {
  return z
    .strictObject({
      perSecond: bounded(1, 1_000_000, perSecond).describe('Requests per second in the long run.'),
      burst: bounded(1, 1_000_000, burst).describe('The largest burst of requests.'),
    })
    .prefault({});
}

const listen = z.strictObject({
  host: z.string().min(1).default('127.0.0.1').describe('The address to listen on; `::` for all.'),
  port: bounded(0, 65_535, 8_080).describe('The port; 0 for any free one.'),
  trustedProxies: z
    .array(z.union([z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()]))
    .default([])
    .describe('Addresses or networks of proxies whose `X-Forwarded-For` is trusted.'),
});

const operations = z.strictObject({
  host: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('The address to listen on for `/livez`, `/readyz` and `/metrics`; `::` for all.'),
  port: bounded(0, 65_535, 9_090).describe(
    'The port for these paths; 0 for any free one. With this section, `listen.port` does not serve them.',
  ),
});

export const configSchema = z
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
    limits: limitsSchema.prefault({}),
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

/** The configuration: defaults filled in, secrets read from their files. */
export type ResolvedConfig = z.output<typeof configSchema>;

/**
 * True if callers need credentials, or if only this machine can reach the gateway. The input may
 * lack parts or have wrong types: all mistakes are reported at once, so this check also runs after
 * others failed.
 */
function isReachableOnlyByTheKnown({
  listen,
  credentials,
}: object & Record<string, unknown>): boolean {
  const { keys = [], jwt } = Object(credentials) as CredentialsOptions;
  if (keys.length > 0 || jwt !== undefined) return true;
  const host: unknown = Object(listen).host;
  return typeof host !== 'string' || isLoopback(host);
}
