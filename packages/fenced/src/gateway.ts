import { setTimeout as sleep } from 'node:timers/promises';
import { S3Client } from '@aws-sdk/client-s3';
import {
  createGateway,
  createRateLimit,
  Drain,
  type EndedRequest,
  serveGateway,
} from '@fenced/gateway';
import type { Config } from '@fenced/gateway/config';
import type { Log } from '@fenced/gateway/log';
import { createMetrics } from '@fenced/gateway/metrics';
import { Redlock } from '@fenced/lock';
import { FencedStoreError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { FencedS3 } from '@fenced/store/s3';
import { Redis } from 'ioredis';
import pg from 'pg';
import { GatewaySecrets } from './gateway-secrets.js';
import { PATIENT_CLIENT } from './redis.js';

/** Milliseconds for a dependency to accept a connection. */
const CONNECT_MS = 5_000;
/** Each upload sends several parts at once. */
const S3_CONNECTIONS_MAX = 512;
const INSTALL_EVERY_MS = 1_000;
const LOG_REFUSALS_MS = 60_000;
/** The longest lease of a `Redlock` without the option. The API's document states it. */
const REDLOCK_MAX_TTL_MS = 60_000;

/** A running gateway, with connections of its own. */
export interface RunningGateway {
  readonly url: string;
  /**
   * The address of `/livez`, `/readyz` and `/metrics`; undefined if they have no port of their own.
   */
  readonly operationsUrl: string | undefined;
  /**
   * Lets running requests end, and cuts off those that take too long.
   *
   * @returns true if none was cut off
   */
  drain(): Promise<boolean>;
  /** Credentials and signing keys, which can be replaced. */
  readonly secrets: GatewaySecrets;
  /**
   * Closes all connections to the dependencies. A dependency that does not answer may keep them
   * open for ever.
   */
  close(): Promise<void>;
}

/** Starts a gateway with this configuration. Its dependencies may come up later. */
export async function startGateway(config: Config, log: Log): Promise<RunningGateway> {
  await using parts = new AsyncDisposableStack();
  const drain = new Drain();
  const lock = openLock(config, log, parts);
  const objects = openObjects(config, parts);
  const pool = openPool(config, log, parts);
  const records = pool && new FencedPostgres({ pool });
  const metrics = createMetrics({
    nodes: () => lock.status(),
    droppedLogLines: () => log.droppedLines(),
    ...(pool && { pool }),
  });
  const { listen, limits, signing } = config;
  const secrets = new GatewaySecrets(config);
  const common = {
    lock,
    maxTtlMs: config.redis.maxTtlMs ?? REDLOCK_MAX_TTL_MS,
    metrics,
    drain,
    ...(objects && { objects }),
    ...(records && { records }),
    ...(config.records && { databaseConnectionsMax: config.records.connectionsMax }),
    onRequest: (ended: EndedRequest) => {
      metrics.observe(ended);
      log.request(ended);
    },
  };
  const app = createGateway({
    ...common,
    limits,
    operations: config.operations ? 'elsewhere' : 'here',
    ...secrets.options,
    ...(signing && { signatureTtlMs: signing.ttlMs }),
    bindings: config.bindings,
    rate: {
      perKey: createRateLimit(config.rate.perKey, () => performance.now()),
      perAddress: createRateLimit(config.rate.perAddress, () => performance.now()),
    },
    trustedProxies: listen.trustedProxies,
  });
  const operations =
    config.operations &&
    (await serveGateway(createGateway({ ...common, operations: 'only' }), config.operations));
  const listening = serveGateway(app, {
    host: listen.host,
    port: listen.port,
    onRefused: logRefusals(log),
  });
  const server = await listening.catch(async (error: unknown) => {
    await operations?.drain();
    throw error;
  });
  const installed = records ? install(records, drain.begun.signal, log) : Promise.resolve();
  const all = parts.move();
  return {
    url: server.url,
    operationsUrl: operations?.url,
    secrets,
    drain: async () => {
      const isWhole = await server.drain();
      // Only now, so that `/readyz` and `/metrics` answer during the drain.
      await operations?.drain();
      return isWhole;
    },
    // The lock stays open: to close it would release leases whose holders go on at another gateway.
    close: async () => {
      await installed;
      await all.disposeAsync();
    },
  };
}

function openLock({ redis }: Config, log: Log, parts: AsyncDisposableStack): Redlock {
  const nodes = redis.nodes.map(({ name, url, durable }) => {
    const client = new Redis(url, PATIENT_CLIENT);
    logChanges(log, `redis node ${name}`, (listener) => {
      client.on('error', listener);
      client.on('ready', () => listener(null));
    });
    parts.defer(() => client.disconnect());
    return { name, client, durable };
  });
  const { keyPrefix, maxTtlMs } = redis;
  return new Redlock({
    nodes,
    ...(maxTtlMs !== undefined && { maxTtlMs }),
    ...(keyPrefix !== undefined && { keyPrefix }),
  });
}

function openObjects({ objects }: Config, parts: AsyncDisposableStack): FencedS3 | undefined {
  if (objects === undefined) return undefined;
  const { bucket, prefix, ...address } = objects;
  const client = new S3Client({
    ...address,
    requestHandler: {
      connectionTimeout: CONNECT_MS,
      httpAgent: { maxSockets: S3_CONNECTIONS_MAX },
      httpsAgent: { maxSockets: S3_CONNECTIONS_MAX },
    },
  });
  parts.defer(() => client.destroy());
  return new FencedS3({ client, bucket, prefix });
}

function openPool({ records }: Config, log: Log, parts: AsyncDisposableStack): pg.Pool | undefined {
  if (records === undefined) return undefined;
  const pool = new pg.Pool({
    connectionString: records.url,
    max: records.connectionsMax,
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
  });
  pool.on('error', (error) =>
    log.warn('an idle connection to postgres was lost', { reason: error.message }),
  );
  parts.defer(() => pool.end());
  return pool;
}

/**
 * Creates the schema as soon as the database can be reached. If the role may not do so, an operator
 * must.
 */
async function install(records: FencedPostgres, ended: AbortSignal, log: Log): Promise<void> {
  while (!ended.aborted) {
    try {
      return await records.install();
    } catch (error) {
      if (!(error instanceof FencedStoreError && error.code === 'unavailable'))
        return log.error('the schema of the records could not be installed', error);
    }
    await sleep(INSTALL_EVERY_MS, undefined, { signal: ended }).catch(() => undefined);
  }
}

/** Logs the loss of a connection once, and its return once. A client reports every failed try. */
function logChanges(
  log: Log,
  name: string,
  listen: (listener: (error: Error | null) => void) => void,
): void {
  let isWell = true;
  listen((error) => {
    if (isWell === (error === null)) return;
    isWell = error === null;
    if (error) log.warn(`${name} is gone`, { reason: error.message });
    else log.info(`${name} is back`);
  });
}

/** Logs at most once a minute that connections were closed because there were too many. */
function logRefusals(log: Log): (address: string, reason: Error) => void {
  let refused = 0;
  let nextMs = 0;
  return (address, { message }) => {
    refused += 1;
    if (performance.now() < nextMs) return;
    log.warn(
      'too many connections: if many clients share this address, see listen.trustedProxies and limits.connectionsPerAddressMax',
      { address, reason: message, refused },
    );
    refused = 0;
    nextMs = performance.now() + LOG_REFUSALS_MS;
  };
}
