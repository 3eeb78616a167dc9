import { dirname, join } from 'node:path';
import { TestbedError } from './errors.js';
import { makeTemporaryFolder } from './lifeline.js';
import { REDIS } from './needs.js';
import {
  askRedis,
  nodeName,
  ProgramNode,
  programOf,
  type RedisFaults,
  type RedisService,
} from './redis-node.js';
import { onFreePort } from './server.js';
import { asService, environmentError, fromFirstOrigin } from './service.js';

export interface RedisOptions {
  /** `aof` writes each change to disk before it is acknowledged (`appendfsync always`). @default 'none' */
  readonly persistence?: 'none' | 'aof';
}

/**
 * `n` independent Redis masters: the first `n` of `FENCED_REDIS_URLS` (comma separated), else `redis-server` or
 * `valkey-server` of this machine, else Docker.
 *
 * @throws {TestbedError} where they cannot be had; its `code` says what to do.
 */
export async function startRedis(n: number, options: RedisOptions = {}): Promise<RedisService> {
  if (!Number.isInteger(n) || n < 1 || n > 26) {
    throw new RangeError(`the number of Redis nodes is a whole number from 1 to 26, not ${n}`);
  }
  const { persistence = 'none' } = options;
  return await fromFirstOrigin(REDIS, {
    environment: (urls) => redisOfEnvironment(n, urls),
    program: (command) => redisOfThisMachine(n, persistence, command),
    docker: async () => (await import('./docker.js')).redisInDocker(n, redisArgs(persistence)),
  });
}

async function redisOfEnvironment(n: number, urls: string): Promise<RedisService> {
  const all = urls.split(',').map((url) => url.trim());
  if (all.length < n) {
    throw new TestbedError(
      'environment',
      `${REDIS.variable} names ${all.length} nodes, ${n} are needed`,
    );
  }
  const answers = await Promise.all(
    all.slice(0, n).map(async (url, index) => {
      if (!/^rediss?:\/\//.test(url) || !URL.canParse(url)) {
        throw environmentError(REDIS.variable, url, 'not an address like redis://127.0.0.1:6379');
      }
      const info = await askRedis(url).catch((cause) => {
        throw environmentError(REDIS.variable, url, cause);
      });
      const { hostname: host, port } = new URL(url);
      const place = { name: nodeName(index), host, port: Number(port || 6379), url };
      return { node: { ...place, ...notOurs(place.name) }, program: programOf(info) };
    }),
  );
  const nodes = answers.map(({ node }) => node);
  const program = [...new Set(answers.map((answer) => answer.program))].join(', ');
  return asService({ origin: 'environment', program }, new AsyncDisposableStack(), { nodes });
}

function notOurs(name: string): RedisFaults {
  const refuse = (): Promise<never> => {
    const reason = `comes from ${REDIS.variable}: only nodes that the testbed starts can be ended or paused`;
    return Promise.reject(new TestbedError('not-ours', `Redis node ${name} ${reason}`));
  };
  return { pid: undefined, kill: refuse, start: refuse, pause: refuse, wake: refuse };
}

async function redisOfThisMachine(
  n: number,
  persistence: 'none' | 'aof',
  command: string,
): Promise<RedisService> {
  await using parts = new AsyncDisposableStack();
  const folder = parts.use(await makeTemporaryFolder('redis'));
  const starting = Array.from({ length: n }, (_, index) =>
    onFreePort(async (port) => {
      const logPath = join(folder.path, `${port}`, 'redis.log');
      const args = [...redisArgs(persistence), '--port', `${port}`, '--dir', dirname(logPath)];
      const node = new ProgramNode(nodeName(index), port, { command, args, logPath });
      await node.start();
      return parts.use(node);
    }),
  );
  // Where one fails the others must be up before they can be ended.
  await Promise.allSettled(starting);
  const nodes = await Promise.all(starting);
  const program = nodes[0]?.program ?? command;
  return asService({ origin: 'program', program }, parts.move(), { nodes });
}

function redisArgs(persistence: 'none' | 'aof'): string[] {
  const aof = ['--appendonly', 'yes', '--appendfsync', 'always'];
  return ['--save', '', ...(persistence === 'aof' ? aof : ['--appendonly', 'no'])];
}
