// Acquires a lease in a process of its own, sends its token, and stays.
import { ZooKeeperLock } from '@fenced/lock/zookeeper';

const { SERVERS: servers, ROOT: root, WAIT } = process.env;
const lock = new ZooKeeperLock({ servers, root, sessionTimeoutMs: 2_000 });
const lease = await lock.acquire('x', { ttlMs: 3_000, waitMs: Number(WAIT) });
process.send?.(`${lease.token}`);
