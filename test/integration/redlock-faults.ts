import { setTimeout as sleep } from 'node:timers/promises';
import { type LocalRedisNode, TcpProxy } from '@fenced/testbed';
import { type Site, TTL_MS, type World, within } from './redlock-world.js';

const HOUR_MS = 3_600_000;

/**
 * What happens to one site while clients acquire. When it resolves a server answers for the site again, to all clients, with
 * whatever memory it has left. Invariant: a fault leaves every other site alone.
 */
export type Fault = (site: Site, world: World) => Promise<void>;

export const FAULTS: Readonly<Record<string, Fault>> = {
  'kill -9, back with its data': async ({ server }) => {
    await server.kill();
    await server.start();
  },
  'kill -9, back without data': async ({ server }) => {
    await server.kill();
    await server.start('none');
  },
  'kill -9, back with an earlier snapshot': async ({ server }, world) => {
    const snapshot = await server.snapshot();
    await world.untilAcquired(10);
    await server.kill();
    await server.start(snapshot);
  },
  FLUSHALL: async ({ server }, world) => {
    await world.admin(server).flushall();
  },
  'SIGSTOP for longer than a lease': async ({ server }) => {
    await server.pause();
    await sleep(TTL_MS * 2);
    await server.wake();
  },
  'its clock an hour ahead, for good': async ({ server }, world) => {
    // Right again it would keep what was locked meanwhile for that hour.
    await server.setClock(server.aheadMs + HOUR_MS);
    await world.untilAcquired(10);
  },
  'its clock an hour behind for a while': async ({ server }, world) => {
    const { aheadMs } = server;
    await server.setClock(aheadMs - HOUR_MS);
    await world.untilAcquired(10);
    await server.setClock(aheadMs);
  },
  'a failover to a replica that lags, while half of the clients still reach the old master': async (
    site,
    world,
  ) => {
    const old = site.server;
    const replica = await laggingReplica(site, world);
    await world.admin(replica).replicaof('NO', 'ONE');
    site.server = replica;
    site.doors[1]?.redirect(replica);
    await world.untilAcquired(20);
    await old.kill();
    site.doors[0]?.redirect(replica);
    world.spares.push(old);
  },
  'made a replica of its own replica that lags, and a master again': async (site, world) => {
    const { server } = site;
    const replica = await laggingReplica(site, world);
    await world.admin(replica).replicaof('NO', 'ONE');
    await untilInSync(world, server, replica.port);
    await world.untilAcquired(10);
    await world.admin(server).replicaof('NO', 'ONE');
    await replica.kill();
    world.spares.push(replica);
  },
};

/** Starts the spare as the site's replica, lets it catch up, and keeps from it what clients do after that. */
async function laggingReplica({ server }: Site, world: World): Promise<LocalRedisNode> {
  const replica = world.spares.pop();
  if (!replica) throw new Error('more sites fail over at once than a majority can do without');
  await replica.setClock(server.aheadMs);
  await replica.start('none');
  await using link = await TcpProxy.start(server);
  await untilInSync(world, replica, link.port);
  link.hold('toClient');
  await world.untilAcquired(10);
  return replica;
}

async function untilInSync(world: World, replica: LocalRedisNode, port: number): Promise<void> {
  const admin = world.admin(replica);
  await admin.replicaof('127.0.0.1', port);
  const isUp = async (): Promise<boolean> =>
    (await admin.info('replication').catch(() => '')).includes('master_link_status:up');
  await within(30_000, `replica ${replica.name} to be in sync`, isUp);
}
