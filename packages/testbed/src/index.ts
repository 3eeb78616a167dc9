/**
 * Real Redis, Postgres and S3 on loopback, and faults for them. A proxy holds, loses and cuts
 * traffic. Workers are really paused and killed.
 *
 * Every server, process and folder ends with the process that started it, even after `kill -9`.
 */

export { BreakpointError, type Place } from './breakpoint.js';
export {
  ServiceStartError,
  ServiceUnavailableError,
  TestbedError,
  type TestbedErrorCode,
} from './errors.js';
export { type EtcdNode, type EtcdService, startEtcd } from './etcd.js';
export { makeTemporaryFolder, spawnGuarded } from './guardian.js';
export {
  type LocalRedisNode,
  type LocalRedisOptions,
  type LocalRedisService,
  type Snapshot,
  startLocalRedis,
  startSentinel,
} from './local-redis.js';
export { describeMachine, type MachineFacts } from './machine.js';
export { type MariadbService, startMariadb } from './mariadb.js';
export { MovableClock } from './movable-clock.js';
export { CHROMIUM, COQ, FIREFOX, GO, installed, JAVA, PYTHON } from './needs.js';
export { type PgBouncerService, startPgBouncer } from './pgbouncer.js';
export {
  type LocalPostgres,
  type PostgresOptions,
  startLocalPostgres,
  startPostgres,
} from './postgres.js';
export type { PostgresService } from './postgres-address.js';
export { WorkerEndedError, type WorkerOptions, WorkerProcess } from './process.js';
export {
  cacheFolder,
  findFakeTime,
  findProgram,
  POSTGRES_MAJORS,
  type PostgresMajor,
  type S3Program,
} from './programs.js';
export { type Direction, TcpProxy, type Upstream, type WaitOptions } from './proxy.js';
export { type RedisOptions, startRedis } from './redis.js';
export type { RedisNode, RedisService } from './redis-node.js';
export { s3ServersAtHand, startS3 } from './s3.js';
export type { S3Address, S3Service } from './s3-address.js';
export type { Origin, Service } from './service.js';
export { groupStartedBy, type StartedGroup, startedGroup } from './started-group.js';
export {
  startZooKeeper,
  type ZooKeeperOptions,
  type ZooKeeperServer,
  type ZooKeeperService,
} from './zookeeper.js';
