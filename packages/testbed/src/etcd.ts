import { join } from 'node:path';
import { makeTemporaryFolder } from './guardian.js';
import { ETCD, installed } from './needs.js';
import { nodeName } from './redis-node.js';
import { onFreePorts } from './server.js';
import { asService, type Service } from './service.js';
import { StoppableServer } from './stoppable-server.js';

const ASK_LIMIT_MS = 1_000;

/** A member of the cluster. */
export interface EtcdNode extends Omit<StoppableServer, typeof Symbol.asyncDispose> {
  /** `a`, `b`, `c` … */
  readonly name: string;
  readonly url: string;
  /** True if it is the leader, according to itself. */
  isLeader(): Promise<boolean>;
}

export interface EtcdService extends Service {
  readonly nodes: readonly EtcdNode[];
}

class Member extends StoppableServer implements EtcdNode {
  readonly name: string;
  readonly url: string;

  constructor(name: string, url: string, launch: ConstructorParameters<typeof StoppableServer>[1]) {
    super(`etcd ${name}`, launch, async () => {
      // A member is healthy once the cluster has a leader.
      await ask(`${url}/health`);
      return `etcd ${(await ask(`${url}/version`)).etcdserver}`;
    });
    this.name = name;
    this.url = url;
  }

  async isLeader(): Promise<boolean> {
    const { header, leader } = (await ask(`${this.url}/v3/maintenance/status`, '{}')) as {
      header?: { member_id?: string };
      leader?: string;
    };
    return leader !== undefined && leader === header?.member_id;
  }
}

/**
 * Starts a cluster of `n` members. On Debian as root, installs etcd first if it is missing.
 *
 * @throws {TestbedError} if it is not available; see its `code`
 */
export async function startEtcd(n = 3): Promise<EtcdService> {
  const command = await installed(ETCD);
  return await onFreePorts(2 * n, async (ports) => {
    await using parts = new AsyncDisposableStack();
    const folder = parts.use(await makeTemporaryFolder('etcd'));
    const members = Array.from({ length: n }, (_, at) => ({
      name: nodeName(at),
      url: `http://127.0.0.1:${ports[at]}`,
      peerUrl: `http://127.0.0.1:${ports[n + at]}`,
    }));
    const cluster = members.map(({ name, peerUrl }) => `${name}=${peerUrl}`).join(',');
    const nodes = members.map(({ name, url, peerUrl }) => {
      const path = join(folder.path, name);
      const args = [
        ...['--name', name, '--data-dir', path, '--log-level', 'warn', '--logger', 'zap'],
        ...['--listen-client-urls', url, '--advertise-client-urls', url],
        ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
        ...['--initial-cluster', cluster, '--initial-cluster-token', folder.path],
      ];
      return parts.use(new Member(name, url, { command, args, logPath: `${path}.log` }));
    });
    // If one fails, the others must have started before they can be ended.
    const starting = nodes.map((node) => node.start());
    await Promise.allSettled(starting);
    await Promise.all(starting);
    const program = nodes[0]?.program ?? command;
    return asService({ origin: 'program', program }, parts.move(), { nodes });
  });
}

async function ask(url: string, body?: string): Promise<Record<string, unknown>> {
  const signal = AbortSignal.timeout(ASK_LIMIT_MS);
  const answer = await fetch(url, { signal, ...(body && { method: 'POST', body }) });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  return (await answer.json()) as Record<string, unknown>;
}
