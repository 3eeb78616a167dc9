import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Lock } from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { S3Lock } from '@fenced/lock/s3';
import { FencedS3 } from '@fenced/store/s3';
import { startEtcd, startS3, startZooKeeper, TcpProxy, type Upstream } from '@fenced/testbed';
import { expect, test, vi } from 'vitest';
import { addressOf, s3ClientVia } from '../lock/harness/s3-client.js';
import { LockWorld, SESSION_MS } from '../lock/harness/zookeeper.js';

const TTL_MS = 2_000;
/** Time between two looks of a waiter: longer than the release of the first holder takes. */
const POLL_MS = 500;
/** Slack for a busy machine. A lease that nobody ends would last much longer. */
const SLACK_MS = 6_000;

/** The locks of one name, on one real server. */
interface Locks {
  /** A client of its own; through the proxy, if one is given. */
  open(proxy?: TcpProxy): Lock;
  /** True if a client waits for a held lock, according to the server. */
  isWaitedFor(proxy: TcpProxy): Promise<boolean>;
  /** Resolves when nothing of a lease or of a waiter is left. */
  untilClean(): Promise<void>;
}

interface Service {
  readonly upstream: Upstream;
  /** The documented time after which a crash blocks nobody. */
  readonly crashMs: number;
  locks(): Locks;
  /** Resolves when no play has left anything. */
  untilClean(): Promise<void>;
}

type Start = (parts: AsyncDisposableStack) => Promise<Service>;

const until = (check: () => unknown): Promise<void> =>
  vi.waitFor(async () => void (await check()), { timeout: 10_000, interval: 20 });

const etcd: Start = async (parts) => {
  const service = parts.use(await startEtcd(1));
  const url = service.nodes[0]?.url ?? '';
  const ask = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const answer = await fetch(`${url}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) });
    return (await answer.json()) as Record<string, unknown>;
  };
  return {
    upstream: addressOf(url),
    // An etcd lease of 3 s ends a crashed waiter. etcd looks for ended leases twice a second.
    crashMs: 3_500,
    locks: () => {
      const keyPrefix = `${randomUUID()}/`;
      const [key, range_end] = [keyPrefix, `${keyPrefix}\x7f`].map(btoa);
      const keys = async (): Promise<number> =>
        Number((await ask('kv/range', { key, range_end, count_only: true })).count ?? 0);
      return {
        open: (proxy) => {
          const endpoints = [proxy ? `http://127.0.0.1:${proxy.port}` : url];
          return new EtcdLock({ endpoints, keyPrefix });
        },
        isWaitedFor: async () => (await keys()) === 2,
        untilClean: () => until(async () => expect(await keys()).toBe(0)),
      };
    },
    untilClean: () =>
      until(async () => expect((await ask('lease/leases', {})).leases ?? []).toEqual([])),
  };
};

const s3: Start = async (parts) => {
  const service = parts.use(await startS3());
  const clientVia = (upstream: Upstream): S3Client => {
    const client = s3ClientVia(service, upstream);
    parts.defer(() => client.destroy());
    return client;
  };
  const direct = clientVia(addressOf(service.endpoint));
  const bucket = `locks-${randomUUID()}`;
  await direct.send(new CreateBucketCommand({ Bucket: bucket }));
  await new FencedS3({ client: direct, bucket }).probe();
  const objects = new FencedS3({ client: direct, bucket });
  return {
    upstream: addressOf(service.endpoint),
    crashMs: TTL_MS * 1.01 + POLL_MS,
    locks: () => {
      const keyPrefix = `${randomUUID()}/`;
      return {
        open: (proxy) => {
          const client = proxy ? clientVia(proxy) : direct;
          const own = new FencedS3({ client, bucket, requestTimeoutMs: 1_000 });
          return new S3Lock({ objects: own, keyPrefix, pollMs: POLL_MS });
        },
        isWaitedFor: async (proxy) => proxy.roundTrips > 1,
        untilClean: () =>
          until(async () => {
            const found = await objects.get(`${keyPrefix}x`);
            expect(new TextDecoder().decode(found?.body)).toBe('{}');
          }),
      };
    },
    untilClean: async () => undefined,
  };
};

const zookeeper: Start = async (parts) => {
  const service = parts.use(await startZooKeeper(1));
  const [upstream] = service.servers;
  if (!upstream) throw new Error('no server');
  return {
    upstream,
    crashMs: Math.max(TTL_MS, SESSION_MS),
    locks: () => {
      const world = parts.use(new LockWorld(service, `/${randomUUID()}`));
      return {
        open: (proxy) => world.lock(proxy && { servers: `127.0.0.1:${proxy.port}` }),
        isWaitedFor: async () => (await world.children('queues/x')).length > 0,
        untilClean: () => world.untilClean(),
      };
    },
    untilClean: async () => undefined,
  };
};

/** A play with the fault `none` only counts the replies. */
type Fault = 'none' | 'client killed' | 'reply lost';

/** Acquires, extends and releases. The outcome of the release may be unknown. */
async function useLock(lock: Lock, tokens: bigint[]): Promise<void> {
  const lease = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 20_000 });
  tokens.push(lease.token);
  await lease.extend(TTL_MS);
  expect(await lease.release()).toMatch(/^(released|unknown)$/);
}

/** @returns the number of replies until the fault, or until the end */
async function play(
  { upstream, locks: newLocks, crashMs }: Service,
  waits: boolean,
  fault: Fault,
  moment: number,
): Promise<number> {
  const locks = newLocks();
  await using proxy = await TcpProxy.start(upstream);
  const tokens: bigint[] = [];
  const beside = locks.open();
  const first = await beside.acquire('x', { ttlMs: 20_000, waitMs: 20_000 });
  tokens.push(first.token);
  if (!waits) await first.release();
  proxy.hold('toClient');
  let isOver = false;
  const used = useLock(locks.open(proxy), tokens).catch((error) => {
    expect(error).toMatchObject({ code: 'no-quorum' });
  });
  const ended = used.then(() => {
    isOver = true;
    return 'end' as const;
  });
  const free = async (): Promise<void> => {
    while (!isOver && !(await locks.isWaitedFor(proxy))) await sleep(20);
    await first.release();
  };
  const freed = waits && free();
  let replies = 0;
  for (; ; replies += 1) {
    const step = await Promise.race([ended, proxy.untilHeld('toClient')]);
    if (step === 'end' || (fault !== 'none' && replies === moment)) break;
    proxy.release('toClient');
    proxy.hold('toClient');
  }
  if (fault === 'client killed') {
    isOver = true;
    proxy.shut();
  } else {
    proxy.cut();
    proxy.heal();
    await ended;
  }
  await freed;
  const startedMs = performance.now();
  const next = await beside.acquire('x', { ttlMs: 20_000, waitMs: 20_000 });
  expect(performance.now() - startedMs, `${fault} at ${moment}`).toBeLessThan(crashMs + SLACK_MS);
  tokens.push(next.token);
  expect(tokens).toEqual(tokens.toSorted((one, other) => (one < other ? -1 : 1)));
  await next.release();
  await locks.untilClean();
  return replies;
}

const FAULTS = ['client killed', 'reply lost'] as const;

test.each<[string, Start]>([
  ['EtcdLock', etcd],
  ['S3Lock', s3],
  ['ZooKeeperLock', zookeeper],
])(
  '%s: a client that is killed or loses the reply, at each reply, leaves nothing',
  async (_, start) => {
    await using parts = new AsyncDisposableStack();
    const service = await start(parts);
    for (const waits of [false, true]) {
      const replies = await play(service, waits, 'none', 0);
      expect(replies).toBeGreaterThan(3);
      const plays = Array.from({ length: replies }, (_, moment) =>
        FAULTS.map((fault) => play(service, waits, fault, moment)),
      );
      await Promise.all(plays.flat());
    }
    await service.untilClean();
  },
  120_000,
);
