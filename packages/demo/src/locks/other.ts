import type { Redlock } from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedS3 } from '@fenced/store/s3';
import pg from 'pg';
import { connect } from '../documents/s3.js';
import type { OtherService } from '../job.js';

/** The locks that keep a connection until they are closed. */
export const connected: AsyncDisposableStack = new AsyncDisposableStack();

/**
 * Opens another lock service than Redis. `keyPrefix` separates its locks from those of other runs.
 */
export function openOther(
  service: OtherService,
  keyPrefix: string,
  first: { readonly firstToken?: bigint },
): Pick<Redlock, 'tryAcquire'> {
  switch (service.kind) {
    case 'postgres': {
      const pool = new pg.Pool({ connectionString: service.url, allowExitOnIdle: true });
      pool.on('error', () => {});
      const lock = new PostgresLock({ pool, ...first });
      // All locks of a database share one name space, so the prefix is a part of the names.
      return {
        tryAcquire: (resource, options) => lock.tryAcquire(`${keyPrefix}${resource}`, options),
      };
    }
    case 'etcd':
      return new EtcdLock({ endpoints: service.endpoints, keyPrefix });
    case 'zookeeper':
      return connected.use(new ZooKeeperLock({ servers: service.servers, root: `/${keyPrefix}` }));
    case 's3': {
      const objects = new FencedS3({ client: connect(service), bucket: service.bucket });
      return new S3Lock({ objects, keyPrefix, ...first });
    }
  }
}
