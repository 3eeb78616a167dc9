import { type Lease, LockError, type Runtime } from '@fenced/lock';
import { ZooKeeperLock, type ZooKeeperLockConfig } from '@fenced/lock/zookeeper';
import type { ZooKeeperService } from '@fenced/testbed';
import { systemRuntime } from '../../../packages/lock/src/runtime/runtime.js';
import {
  getChildren,
  type Operation,
} from '../../../packages/lock/src/zookeeper/protocol/operations.js';
import { Session } from '../../../packages/lock/src/zookeeper/protocol/session.js';

export const SESSION_MS = 2_000;

/** A session with the servers of these addresses, without a lock above it. */
export function openSession(addresses: string): Session {
  const servers = addresses.split(',').map((address) => {
    const [host = '', port] = address.split(':');
    return { host, port: Number(port) };
  });
  return new Session({ servers, credentials: [], timeoutMs: SESSION_MS }, systemRuntime);
}

/** Repeats a request until the server answers. A refusal is an answer, too. */
export async function insist<Reply>(session: Session, operation: Operation<Reply>): Promise<Reply> {
  for (;;) {
    try {
      return await session.request(operation, AbortSignal.timeout(500));
    } catch (error) {
      if ((error as Error).name === 'ZooKeeperError' || session.isClosed) throw error;
    }
  }
}

/** One lock service below a root of its own. The test sees its nodes by an additional session. */
export class LockWorld implements AsyncDisposable {
  readonly root: string;
  readonly session: Session;
  readonly #service: ZooKeeperService;
  readonly #locks: ZooKeeperLock[] = [];

  constructor(service: ZooKeeperService, root: string) {
    this.#service = service;
    this.root = root;
    this.session = openSession(service.addresses);
  }

  lock(config: Partial<ZooKeeperLockConfig> = {}, runtime?: Runtime): ZooKeeperLock {
    const { addresses: servers } = this.#service;
    const options = { servers, root: this.root, sessionTimeoutMs: SESSION_MS, ...config };
    const lock = new ZooKeeperLock(options, runtime);
    this.#locks.push(lock);
    return lock;
  }

  /** The names of the nodes below a path of the service; none if it does not exist. */
  async children(path: string): Promise<string[]> {
    try {
      return await insist(this.session, getChildren(`${this.root}/${path}`));
    } catch {
      return [];
    }
  }

  /** Resolves when that many clients wait for the resource. */
  async untilWaiting(resource: string, count: number): Promise<string[]> {
    for (;;) {
      const waiters = await this.children(`queues/${resource}`);
      if (waiters.length === count) return waiters;
    }
  }

  /** Resolves when nothing is left of any lease and any waiter. */
  async untilClean(): Promise<void> {
    for (;;) {
      const left = await Promise.all(['leases', 'queues'].map((path) => this.children(path)));
      if (left.flat().length === 0) return;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#locks.map((lock) => lock.close()));
    await this.session.close();
  }
}

/** Extends the lease for as long as `work` lasts, however often a try fails. */
export async function kept(lease: Lease, ttlMs: number, work: () => Promise<void>): Promise<void> {
  let isOver = false;
  const working = work().finally(() => {
    isOver = true;
  });
  while (!isOver) {
    await lease.extend(ttlMs).catch((error: unknown) => {
      if (!(error instanceof LockError) || error.code !== 'no-quorum') throw error;
    });
  }
  await working;
}
