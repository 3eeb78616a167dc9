import { setTimeout as sleep } from 'node:timers/promises';
import { type LocalRedisNode, TcpProxy } from '@fenced/testbed';
import { PATIENCE_MS, type Site, TTL_MS, type World, within } from './redlock-world.js';

const HOUR_MS = 3_600_000;

/**
 * A fault of one site (a node name) while clients acquire. At its end, some server answers all
 * clients under that name again, perhaps without memory. Invariant: a fault concerns one site only.
 */
type Fault = (site: Site, world: World) => Promise<void>;

export type Faults = Readonly<Record<string, Fault>>;

/** Faults after which the server of the site does not know the latest tokens of the site. */
export const LOSSES: Faults = {
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
};

/** Losses of a master that has a replica. */
export const FAILOVERS: Faults = {
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
    await world.admin(server).replicaof('NO', 'ONE');
    await replica.kill();
    world.spares.push(replica);
  },
};

/**
 * Faults after which the server remembers everything. It was away, it is another process, or its
 * clock is wrong.
 */
export const DISTURBANCES: Faults = {
  'kill -9, back with its data': async ({ server }) => {
    await server.kill();
    await server.start();
  },
  'SIGSTOP for longer than a lease': async ({ server }) => {
    await server.pause();
    await sleep(TTL_MS * 2);
    await server.wake();
  },
  'its clock an hour ahead for a while': async ({ server }, world) => {
    const { aheadMs } = server;
    await server.setClock(aheadMs + HOUR_MS);
    await world.untilAcquired(10);
    await server.setClock(aheadMs);
  },
  'its clock an hour behind for a while': async ({ server }, world) => {
    const { aheadMs } = server;
    await server.setClock(aheadMs - HOUR_MS);
    await world.untilAcquired(10);
    await server.setClock(aheadMs);
  },
};

/**
 * A failover that splits the clients. Then each half of the clients reaches one of the two masters,
 * and half of the other sites. If the old master had a vote, each half would have a majority, and
 * would not know the tokens of the other half.
 */
export async function splitBrain(site: Site, world: World): Promise<void> {
  const old = site.server;
  const [near, far] = halves(world.sites.filter((other) => other !== site));
  for (const { doors } of far) doors[0]?.shut();
  const replica = await laggingReplica(site, world);
  await world.admin(replica).replicaof('NO', 'ONE');
  site.server = replica;
  site.doors[1]?.redirect(replica);
  try {
    await world.untilVoting();
    for (const { doors } of near) doors[1]?.shut();
    await world.untilAcquired(20);
  } finally {
    for (const { doors } of world.sites) for (const door of doors) door.accept();
    await old.kill();
    site.doors[0]?.redirect(replica);
    world.spares.push(old);
  }
}

/**
 * Gives a master its first replica. Redis then changes the master's replication id, which ends its
 * vote. Later replicas do not change the id.
 */
export async function hadReplica({ server }: Site, world: World): Promise<void> {
  const replica = await replicaOf(server, server.port, world);
  await replica.kill();
  world.spares.push(replica);
}

/** The first half of the items, and the second. */
export function halves<T>(all: readonly T[]): readonly [readonly T[], readonly T[]] {
  return [all.slice(0, all.length / 2), all.slice(all.length / 2)];
}

/**
 * Starts a spare server as the site's replica, and lets it catch up. Then it is cut off from its
 * master, so it lacks all later changes.
 */
async function laggingReplica({ server }: Site, world: World): Promise<LocalRedisNode> {
  await using link = await TcpProxy.start(server);
  const replica = await replicaOf(server, link.port, world);
  link.hold('toClient');
  await world.untilAcquired(10);
  return replica;
}

/** @param port the port at which the replica finds the master */
async function replicaOf(
  master: LocalRedisNode,
  port: number,
  world: World,
): Promise<LocalRedisNode> {
  const replica = world.spares.pop();
  if (!replica) throw new Error('more sites fail over at once than a majority can do without');
  await replica.setClock(master.aheadMs);
  await replica.start('none');
  await untilInSync(world, replica, port);
  return replica;
}

async function untilInSync(world: World, replica: LocalRedisNode, port: number): Promise<void> {
  const admin = world.admin(replica);
  await admin.replicaof('127.0.0.1', port);
  const isUp = async (): Promise<boolean> =>
    (await admin.info('replication').catch(() => '')).includes('master_link_status:up');
  await within(PATIENCE_MS, `replica ${replica.name} to be in sync`, isUp);
}
