import { FencedGateway, type GatewayObjects } from '@fenced/client';
import { createGateway, serveGateway } from '@fenced/gateway';
import { Redlock } from '@fenced/lock';
import type { FencedS3, FencedS3Options } from '@fenced/store/s3';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import type { Stage } from './stage.js';

/** Returns the same server and bucket, with a gateway between each client and its store. */
export async function behindGateways(stage: Stage): Promise<Stage<GatewayObjects>> {
  await using parts = new AsyncDisposableStack();
  parts.use(stage);
  const redis = parts.use(await startRedis(1));
  const node = new Redis(redis.nodes[0]?.url ?? '');
  parts.defer(() => node.disconnect());
  const redlock = new Redlock({ nodes: [node] });
  const all = parts.move();
  const open = (objects: FencedS3, { attemptsMax }: Partial<FencedS3Options> = {}) => {
    const app = createGateway({ lock: redlock, objects });
    const starting = serveGateway(app, { port: 0 });
    all.defer(async () => void (await (await starting).drain()));
    return new FencedGateway({
      url: 'http://gateway.invalid',
      ...(attemptsMax !== undefined && { attemptsMax }),
      // Waits for the gateway, whose port is known only when it has started.
      fetch: async (asked, init) => {
        const { pathname } = new URL(String(asked));
        return fetch(new URL(pathname, (await starting).url), init);
      },
    }).objects;
  };
  return {
    ...stage,
    store: (options) => open(stage.store(options), options),
    viaProxy: (options) => open(stage.viaProxy(options), options),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
