import {
  type LocalRedisNode,
  startEtcd,
  startLocalRedis,
  startZooKeeper,
  TcpProxy,
  type Upstream,
} from '@fenced/testbed';
import { NODES } from './locks.ts';

/** A member of etcd or ZooKeeper, which can be stopped and killed. It keeps its data. */
export interface Member extends Upstream {
  readonly name: string;
  readonly server: Readonly<Record<'pause' | 'wake' | 'kill' | 'start', () => Promise<void>>>;
}

/** The servers of a subject's locks, apart from those that are stores, too. */
export interface LockServers {
  readonly nodes: readonly LocalRedisNode[];
  /** One more Redis node, if there are any. */
  readonly spare: LocalRedisNode | undefined;
  readonly members: readonly Member[];
  readonly programs: Readonly<Record<string, string>>;
}

const MEMBERS = 3;

export async function startLockServers(
  subject: string,
  hasMovableClock: boolean,
  parts: AsyncDisposableStack,
): Promise<LockServers> {
  const nothing = { nodes: [], spare: undefined, members: [] };
  if (subject === 's3') return { ...nothing, programs: {} };
  if (subject === 'etcd') {
    const { nodes, program } = parts.use(await startEtcd(MEMBERS));
    const members = nodes.map((server) => ({
      ...upstreamOf(server.url),
      server,
      name: server.name,
    }));
    return { ...nothing, members, programs: { etcd: program } };
  }
  if (subject === 'zookeeper') {
    const { servers, program } = parts.use(await startZooKeeper(MEMBERS, { isDurable: true }));
    const members = servers.map((server, at) => {
      const { host, port } = server;
      return { host, port, server, name: `m${at}` };
    });
    return { ...nothing, members, programs: { zookeeper: program } };
  }
  const count = NODES + 1;
  const args = ['--repl-diskless-sync-delay', '0'];
  const options = { persistence: 'aof', hasMovableClock, args } as const;
  const { nodes, program } = parts.use(await startLocalRedis(count, options));
  const [spare, ...others] = nodes;
  return { nodes: others, spare, members: [], programs: { redis: program } };
}

/** Opens a proxy before each server of the locks. */
export function openLockDoors(
  { nodes, members }: LockServers,
  parts: AsyncDisposableStack,
): Promise<readonly TcpProxy[]> {
  const servers = [...nodes.map(({ url }) => upstreamOf(url)), ...members];
  return Promise.all(servers.map(async (server) => parts.use(await TcpProxy.start(server))));
}

export function upstreamOf(url: string): Upstream {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}
