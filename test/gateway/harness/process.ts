import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type S3Address, TcpProxy, WorkerProcess } from '@fenced/testbed';
import { type Addresses, type GatewayWorld, until } from './world.ts';

const bin = fileURLToPath(new URL('../../../packages/fenced/bin/fenced.js', import.meta.url));

/** The statement of `FencedS3` between the check of the token and the conditional write. */
export const BEFORE_THE_WRITE = {
  file: new URL('../../../packages/fenced-store/dist/s3/write/writer.js', import.meta.url),
  text: 'const result = await this.#send(',
};

/** `fenced gateway` in a process of its own. */
export interface GatewayProcess {
  readonly url: string;
  /** The address of the port that serves `/readyz`: the port of the operations if there is one. */
  readonly operationsUrl: string;
  readonly process: WorkerProcess;
  /** Its log, a JSON document a line. */
  readonly log: readonly Record<string, unknown>[];
}

/** A file with the configuration of gateways in this world; it is removed with `parts`. */
export async function configFile(
  world: Pick<GatewayWorld, 'keyPrefix' | 'bucket' | 'addresses'> & { readonly s3: S3Address },
  parts: AsyncDisposableStack,
  addresses: Addresses = world.addresses,
  limits: Readonly<Record<string, number>> = {},
): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fenced-gateway-'));
  parts.defer(() => rm(folder, { recursive: true }));
  const { accessKeyId, secretAccessKey, region } = world.s3;
  const config = {
    listen: { port: 0 },
    redis: {
      keyPrefix: world.keyPrefix,
      nodes: addresses.redis.map(({ host, port }, at) => ({
        name: `n${at}`,
        url: `redis://${host}:${port}`,
      })),
    },
    objects: {
      bucket: world.bucket,
      endpoint: addresses.s3,
      forcePathStyle: true,
      region,
      accessKeyId,
      secretAccessKey,
    },
    records: { url: addresses.postgres },
    limits: { graceMs: 3_000, ...limits },
  };
  const path = join(folder, 'gateway.yaml');
  await writeFile(path, JSON.stringify(config));
  return path;
}

/**
 * Starts a gateway. Resolves when it is ready; if its operations have another port, when it
 * listens.
 *
 * @param stopAt the statement before which the process is held, once
 */
export async function startGateway(
  config: string,
  {
    stopAt,
    port,
    env = {},
  }: {
    readonly stopAt?: typeof BEFORE_THE_WRITE;
    readonly port?: number;
    readonly env?: Readonly<Record<string, string>>;
  } = {},
): Promise<GatewayProcess> {
  const log: Record<string, unknown>[] = [];
  const process = await WorkerProcess.start(bin, {
    args: ['gateway', '--config', config],
    env: { ...env, ...(port !== undefined && { FENCED_GATEWAY_LISTEN_PORT: String(port) }) },
    onLine: (line) => log.push(JSON.parse(line)),
    ...(stopAt && { stopAt }),
  });
  const listening = () => log.find(({ msg }) => msg === 'listening');
  await Promise.race([
    until(() => listening() !== undefined),
    process.exited.then(() => {
      throw new Error(`the gateway ended: ${JSON.stringify(log)} ${process.stderr}`);
    }),
  ]);
  const url = String(listening()?.url);
  const operationsUrl = String(listening()?.operationsUrl ?? url);
  if (port === undefined) await until(async () => (await fetch(`${operationsUrl}/readyz`)).ok);
  return { url, operationsUrl, process, log };
}

export interface BehindProxies {
  readonly gateway: GatewayProcess;
  readonly proxies: Readonly<Record<'redis' | 's3' | 'postgres', readonly TcpProxy[]>>;
}

/** A proxy before each dependency, and a gateway that knows only the proxies. */
export async function startBehindProxies(
  world: GatewayWorld,
  own: AsyncDisposableStack,
  limits: Readonly<Record<string, number>>,
  stopAt?: typeof BEFORE_THE_WRITE,
): Promise<BehindProxies> {
  const before = async ({ hostname: host, port }: URL): Promise<TcpProxy> =>
    own.use(await TcpProxy.start({ host, port: Number(port) }));
  const redis: TcpProxy[] = [];
  for (const { host, port } of world.redis.nodes)
    redis.push(await before(new URL(`redis://${host}:${port}`)));
  const s3 = await before(new URL(world.s3.endpoint));
  const postgres = await before(new URL(world.postgres.url));
  const url = new URL(world.postgres.url);
  url.host = `${postgres.host}:${postgres.port}`;
  const addresses = { redis, s3: `http://${s3.host}:${s3.port}`, postgres: url.href };
  const file = await configFile(world, own, addresses, limits);
  const gateway = await startGateway(file, { ...(stopAt && { stopAt }) });
  own.use(gateway.process);
  return { gateway, proxies: { redis, s3: [s3], postgres: [postgres] } };
}

export function standStill(proxies: readonly TcpProxy[]): void {
  for (const proxy of proxies) {
    proxy.hold('toServer');
    proxy.hold('toClient');
  }
}
