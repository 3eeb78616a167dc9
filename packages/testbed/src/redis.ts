import { TestbedError } from './errors.js';
import { redisArgs, startLocalRedis } from './local-redis.js';
import { REDIS } from './needs.js';
import { askRedis, nodeName, programOf, type RedisService } from './redis-node.js';
import { asService, environmentError, fromFirstOrigin } from './service.js';
import type { ServerFaults } from './stoppable-server.js';

export interface RedisOptions {
  /**
   * `aof` writes each change to disk before it is acknowledged (`appendfsync always`). @default
   * 'none'
   */
  readonly persistence?: 'none' | 'aof';
}

/**
 * Starts `n` independent Redis masters: the first `n` of `FENCED_REDIS_URLS` (comma separated),
 * else `redis-server` or `valkey-server` of this machine, else Docker.
 *
 * @throws {TestbedError} if they are not available; see its `code`
 */
export async function startRedis(n: number, options: RedisOptions = {}): Promise<RedisService> {
  if (!Number.isInteger(n) || n < 1 || n > 26) {
    throw new RangeError(`the number of Redis nodes must be a whole number from 1 to 26: ${n}`);
  }
  const { persistence = 'none' } = options;
  return await fromFirstOrigin(REDIS, {
    environment: (urls) => redisOfEnvironment(n, urls),
    program: () => startLocalRedis(n, { persistence }),
    docker: async () => (await import('./docker.js')).redisInDocker(n, redisArgs(persistence)),
  });
}

async function redisOfEnvironment(n: number, urls: string): Promise<RedisService> {
  const all = urls.split(',').map((url) => url.trim());
  if (all.length < n) {
    throw new TestbedError(
      'environment',
      `${REDIS.variable} has ${all.length} nodes, ${n} are needed`,
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
      const address = { name: nodeName(index), host, port: Number(port || 6379), url };
      return { node: { ...address, ...notOurs(address.name) }, program: programOf(info) };
    }),
  );
  const nodes = answers.map(({ node }) => node);
  const program = [...new Set(answers.map((answer) => answer.program))].join(', ');
  return asService({ origin: 'environment', program }, new AsyncDisposableStack(), { nodes });
}

function notOurs(name: string): ServerFaults {
  const refuse = (): Promise<never> => {
    const reason = `comes from ${REDIS.variable}: only nodes that the testbed starts can be ended or paused`;
    return Promise.reject(new TestbedError('not-ours', `Redis node ${name} ${reason}`));
  };
  return { pid: undefined, kill: refuse, start: refuse, pause: refuse, wake: refuse };
}
