import type { LocalRedisNode } from '@fenced/testbed';
import { type Clients, until } from './redlock-nodes.js';

/** Settings of a server that joins a Cluster. With a short time-out, changes spread faster. */
export const CLUSTER_ARGS: readonly string[] =
  '--cluster-enabled yes --cluster-node-timeout 2000 --repl-diskless-sync-delay 0'.split(' ');

const SLOTS = 16_384;

/** Makes a Cluster of these masters. Each has an equal part of the slots. */
export async function formCluster(
  clients: Clients,
  masters: readonly LocalRedisNode[],
): Promise<void> {
  const [first, ...others] = masters;
  for (const [at, { port }] of masters.entries()) {
    const slots = Array.from({ length: SLOTS }, (_, slot) => slot);
    const own = slots.filter((slot) => masterOf(slot, masters.length) === at);
    await clients.connect(port).cluster('ADDSLOTS', ...own);
  }
  for (const { host, port } of others) {
    await clients.connect(first?.port ?? 0).cluster('MEET', host, port);
  }
  for (const { port } of masters) {
    const admin = clients.connect(port);
    await until(async () => String(await admin.cluster('INFO')).includes('cluster_state:ok'));
  }
}

function masterOf(slot: number, count: number): number {
  return Math.floor((slot * count) / SLOTS);
}

/** The master that has the slot of this key. */
export async function ownerOf(
  clients: Clients,
  masters: readonly LocalRedisNode[],
  key: string,
): Promise<LocalRedisNode> {
  const [first] = masters;
  const slot = Number(await clients.connect(first?.port ?? 0).cluster('KEYSLOT', key));
  const owner = masters[masterOf(slot, masters.length)];
  if (!owner) throw new Error('there is no master');
  return owner;
}

/** Moves the slot of this key from one master to another one, with its keys. */
export async function moveSlot(
  clients: Clients,
  key: string,
  from: LocalRedisNode,
  to: LocalRedisNode,
): Promise<void> {
  const [source, target] = [clients.connect(from.port), clients.connect(to.port)];
  const [sourceId, targetId] = [await source.cluster('MYID'), await target.cluster('MYID')];
  const slot = Number(await source.cluster('KEYSLOT', key));
  await target.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(sourceId));
  await source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(targetId));
  const keys = async (): Promise<string[]> =>
    (await source.call('CLUSTER', 'GETKEYSINSLOT', slot, 1_000)) as string[];
  // Repeats, because the source accepts new keys as long as the slot has others.
  for (let left = await keys(); left.length > 0; left = await keys()) {
    await source.call('MIGRATE', to.host, to.port, '', 0, 5_000, 'KEYS', ...left);
  }
  for (const admin of [target, source]) {
    await admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', String(targetId));
  }
}
