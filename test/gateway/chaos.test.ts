import { setTimeout as sleep } from 'node:timers/promises';
import { TcpProxy } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { Random } from '../simulation/random.js';
import { Load } from './harness/load.js';
import { Phoenix } from './harness/phoenix.js';
import { configFile } from './harness/process.js';
import { GatewayWorld, until } from './harness/world.js';

const SECONDS = Number(process.env.FENCED_CHAOS_SECONDS ?? 8);
const SEED = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);

test(
  `${SECONDS} s of two gateways, while they and all that they depend on are paused, killed and cut off, seed=${SEED}`,
  async () => {
    await using parts = new AsyncDisposableStack();
    const world = parts.use(await GatewayWorld.start());
    const { redis, s3, postgres } = await proxies(world, parts);
    const url = new URL(world.postgres.url);
    url.host = `${postgres.host}:${postgres.port}`;
    const config = await configFile(world, parts, {
      redis,
      s3: `http://${s3.host}:${s3.port}`,
      postgres: url.href,
    });
    const gateways = [
      parts.use(await Phoenix.start(config)),
      parts.use(await Phoenix.start(config)),
    ];
    const urls = gateways.map((gateway) => gateway.url);
    const loads = (['objects', 'records'] as const).map((kind) => new Load(() => urls, kind, 2));

    const random = new Random(SEED, 'chaos');
    const someTime = (): number => random.between(50, 900);
    const gateway = (): Phoenix => random.pick(gateways);
    const cut = async (proxy: TcpProxy, how: 'shut' | 'hold'): Promise<void> => {
      if (how === 'shut') proxy.shut();
      else proxy.hold(random.pick(['toServer', 'toClient'] as const));
      await sleep(someTime());
      proxy.heal();
    };
    const steps: Readonly<Record<string, () => Promise<void>>> = {
      'pause a gateway': () => gateway().pause(someTime()),
      'kill a gateway': () => gateway().restart('SIGKILL'),
      'shut a gateway down': () => gateway().restart('SIGTERM'),
      'cut S3 off': () => cut(s3, 'shut'),
      'hold S3': () => cut(s3, 'hold'),
      'cut Postgres off': () => cut(postgres, 'shut'),
      'hold Postgres': () => cut(postgres, 'hold'),
      'crash Postgres': () => world.postgres.crash('SIGKILL'),
      'cut a lock node off': () => cut(random.pick(redis), 'shut'),
      'restart a lock node': async () => {
        const node = random.pick(world.redis.nodes);
        await node.kill();
        await node.start();
      },
    };
    const played: string[] = [];
    for (const endMs = performance.now() + SECONDS * 1_000; performance.now() < endMs; ) {
      const name = random.pick(Object.keys(steps));
      played.push(name);
      await steps[name]?.();
      await sleep(random.between(0, 200));
    }

    const applied = loads.map((load) => load.applied);
    await until(() => loads.every((load, at) => load.applied > (applied[at] ?? 0)));
    for (const load of loads) await load.stop();
    for (const load of loads)
      expect({ seed: SEED, wrong: await load.verdict(), played }).toMatchObject({ wrong: [] });
    for (const address of urls)
      await until(async () => (await fetch(`${address}/readyz`)).status === 200);
  },
  120_000 + SECONDS * 2_000,
);

async function proxies(world: GatewayWorld, parts: AsyncDisposableStack) {
  const before = async (host: string, port: number): Promise<TcpProxy> =>
    parts.use(await TcpProxy.start({ host, port }));
  const [s3, postgres] = [new URL(world.s3.endpoint), new URL(world.postgres.url)];
  return {
    redis: await Promise.all(world.redis.nodes.map(({ host, port }) => before(host, port))),
    s3: await before(s3.hostname, Number(s3.port)),
    postgres: await before(postgres.hostname, Number(postgres.port)),
  };
}
