import { randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import {
  GenericContainer,
  getContainerRuntimeClient,
  type StartedTestContainer,
  StartupCheckStrategy,
  type StartupStatus,
} from 'testcontainers';
import { ServiceStartError } from './errors.js';
import { variable } from './needs.js';
import { askPostgres, type PostgresService } from './postgres-address.js';
import { askRedis, nodeName, programOf, type RedisService } from './redis-node.js';
import { askS3, makeAndRemoveBucket, type S3Keys, type S3Service } from './s3-address.js';
import { onFreePort, untilItAnswers } from './server.js';
import { asService } from './service.js';
import type { ServerFaults } from './stoppable-server.js';

export async function redisInDocker(n: number, args: readonly string[]): Promise<RedisService> {
  await using parts = new AsyncDisposableStack();
  const starting = Array.from({ length: n }, async (_, index) => {
    const { container, host, port } = await startContainer(parts, {
      image: variable('FENCED_REDIS_IMAGE') ?? 'redis:8.8',
      port: 6379,
      command: ['redis-server', ...args, '--protected-mode', 'no'],
      ask: (host, port) => askRedis(`redis://${host}:${port}`),
    });
    const url = `redis://${host}:${port}`;
    const start = () => untilItAnswers(asServer(container), () => askRedis(url));
    return { name: nodeName(index), host, port, url, ...(await faultsOf(container, start)) };
  });
  // If one fails, the others must have started before they can be ended.
  await Promise.allSettled(starting);
  const nodes = await Promise.all(starting);
  const programs = await Promise.all(nodes.map(async ({ url }) => programOf(await askRedis(url))));
  return asService({ origin: 'docker', program: `${programs[0]}` }, parts.move(), { nodes });
}

export async function postgresInDocker(connectionsMax: number): Promise<PostgresService> {
  await using parts = new AsyncDisposableStack();
  const password = randomBytes(12).toString('hex');
  const urlOf = (host: string, port: number) =>
    `postgres://postgres:${password}@${host}:${port}/postgres`;
  const { host, port, answer } = await startContainer(parts, {
    image: variable('FENCED_POSTGRES_IMAGE') ?? 'postgres:18.4-alpine',
    port: 5432,
    command: ['postgres', '-c', `max_connections=${connectionsMax}`, '-c', 'fsync=off'],
    environment: {
      POSTGRES_PASSWORD: password,
      POSTGRES_INITDB_ARGS: '--encoding=UTF8 --locale=C',
    },
    ask: (host, port) => askPostgres(urlOf(host, port)),
  });
  const url = urlOf(host, port);
  return asService({ origin: 'docker', program: answer }, parts.move(), { url });
}

export async function minioInDocker(keys: S3Keys): Promise<S3Service> {
  await using parts = new AsyncDisposableStack();
  const image = variable('FENCED_S3_IMAGE') ?? 'quay.io/minio/minio:RELEASE.2025-09-07T16-13-09Z';
  const addressOf = (host: string, port: number) => ({
    ...keys,
    endpoint: `http://${host}:${port}`,
  });
  const { host, port } = await startContainer(parts, {
    image,
    port: 9000,
    command: ['minio', 'server', '/data', '--address', ':9000'],
    environment: {
      MINIO_ROOT_USER: keys.accessKeyId,
      MINIO_ROOT_PASSWORD: keys.secretAccessKey,
      MINIO_BROWSER: 'off',
    },
    ask: (host, port) => askS3(addressOf(host, port)),
  });
  const address = addressOf(host, port);
  await makeAndRemoveBucket(address);
  return asService({ origin: 'docker', program: image }, parts.move(), {
    ...address,
    server: 'minio',
  });
}

interface ContainerPlan<T> {
  readonly image: string;
  /** Port inside the container. */
  readonly port: number;
  readonly command: string[];
  readonly environment?: Record<string, string>;
  readonly ask: (host: string, port: number) => Promise<T>;
}

interface AnsweringContainer<T> {
  readonly container: StartedTestContainer;
  readonly host: string;
  readonly port: number;
  readonly answer: T;
}

/** Chooses the outside port itself, because Docker would choose another one at each start. */
async function startContainer<T>(
  parts: AsyncDisposableStack,
  { image, port: inside, command, environment = {}, ask }: ContainerPlan<T>,
): Promise<AnsweringContainer<T>> {
  return await onFreePort(async (port) => {
    const container = await new GenericContainer(image)
      .withExposedPorts({ container: inside, host: port })
      .withCommand(command)
      .withEnvironment(environment)
      .withWaitStrategy(new Created())
      .start()
      .catch((cause: Error) => {
        throw new ServiceStartError(`Docker image ${image} does not start: ${cause.message}`, {
          cause,
        });
      });
    parts.use(container);
    const host = container.getHost();
    const answer = await untilItAnswers(asServer(container), () => ask(host, port));
    return { container, host, port, answer };
  });
}

/**
 * Replaces the check of testcontainers, which needs a shell in the image. The testbed polls the
 * server itself.
 */
class Created extends StartupCheckStrategy {
  override checkStartupState(): Promise<StartupStatus> {
    return Promise.resolve('SUCCESS');
  }
}

function asServer(container: StartedTestContainer): Parameters<typeof untilItAnswers>[0] {
  return {
    // Docker does not report the end of a container, so only the time limit ends the wait.
    exited: new Promise(() => {}),
    log: async () => text(await container.logs()),
    end: async () => {
      await container.stop();
    },
    unref: () => {},
  };
}

async function faultsOf(
  container: StartedTestContainer,
  untilStarted: () => Promise<unknown>,
): Promise<ServerFaults> {
  const client = await getContainerRuntimeClient();
  const handle = client.container.getById(container.getId());
  return {
    pid: undefined,
    kill: async () => {
      await handle.kill();
      await handle.wait();
    },
    start: async () => {
      await handle.start();
      await untilStarted();
    },
    pause: async () => {
      await handle.pause();
    },
    wake: async () => {
      await handle.unpause();
    },
  };
}
