import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Direction, LocalRedisNode, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { Random } from '../simulation/random.ts';
import { limitDisk } from './disk.ts';
import type { Fault, Make } from './fault.ts';
import type { Operation } from './history.ts';
import { NODES } from './locks.ts';
import { MEMBER_FAULTS } from './member-faults.ts';
import type { Node, World } from './world.ts';

/**
 * The largest jump of a client's wall clock. S3 servers refuse clocks that are wrong by 15 minutes.
 */
const CLIENT_CLOCK_MS = 60_000;
/** The most bytes that a node can still write before its disk is full. */
const FREE_BYTES_MAX = 5_000;
/** Time that most moves take. */
const MOVE_MS_MAX = 150;
/** Time for which a proxy waits for bytes that its fault can hit. */
const TRAFFIC_LIMIT_MS = 2_000;
const BOTH_WAYS: readonly Direction[] = ['toServer', 'toClient'];

/**
 * The kinds of faults, by lane. All lanes run at the same time. A lane makes one fault at a time.
 */
const LANES: Readonly<Record<string, Readonly<Record<string, Make>>>> = {
  clients: {
    async 'client-stop'(world, random) {
      const { name, worker } = random.pick(world.clients);
      await worker.pause();
      await sleep(world.ttlMs * random.between(0.5, 3));
      await worker.wake();
      return { target: name };
    },
    async 'client-kill'(world, random) {
      const client = random.pick(world.clients);
      await world.replace(client);
      return { target: client.name };
    },
    'client-clock': (world, random) =>
      world.aloneWithClocks(async () => {
        const { name, clock } = random.pick(world.clients);
        await clock?.set(random.between(-CLIENT_CLOCK_MS, CLIENT_CLOCK_MS));
        await sleep(world.ttlMs * random.between(1, 6));
        await clock?.set(0);
        return { target: name };
      }),
  },
  nodes: {
    async 'node-stop'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await server.pause();
      await sleep(world.ttlMs * random.between(0.5, 3));
      await server.wake();
      return { target: name };
    },
    async 'node-kill'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await server.kill();
      await server.start('kept');
      return { target: name };
    },
    // The locks move to another key prefix on the same servers.
    'node-move': (world, random) => moved(world, random, null),
    'node-move-resumed': (world, random) => moved(world, random, random.between(0, MOVE_MS_MAX)),
    // Before a node is sealed, a client starts that knows only the next set.
    async 'node-move-early'(world, random) {
      const group = random.below(world.doors.length);
      await world.moveEarly(() => world.visit(group, world.ttlMs * random.between(2, 6)));
      return { target: 'all' };
    },
    // A client starts that is configured with one node only. It would set up a node without memory
    // under its own configuration, so this waits until all nodes vote.
    async 'client-mismatch'(world, random) {
      await world.untilVoting();
      const group = random.below(world.doors.length);
      return { target: await world.visit(group, world.ttlMs * random.between(2, 6), 1) };
    },
    // Invariant: fewer than half of the nodes are without memory. So each loss waits until all
    // vote.
    async 'node-wipe'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await server.kill();
      await server.start('none');
      await world.untilVoting();
      return { target: name };
    },
    async 'node-rollback'(world, random) {
      const { name, server } = random.pick(world.nodes);
      const snapshot = await server.snapshot();
      await sleep(world.ttlMs * random.between(1, 4));
      await server.kill();
      await server.start(snapshot);
      await rm(snapshot.path, { recursive: true });
      await world.untilVoting();
      return { target: name };
    },
    async 'node-failover'(world, random) {
      const node = random.pick(world.nodes);
      await world.failOver(node, world.ttlMs * random.between(0, 4));
      await world.untilVoting();
      return { target: node.name };
    },
    // The old master still serves half of the clients.
    async 'node-split'(world, random) {
      const node = random.pick(world.nodes);
      await world.failOver(node, world.ttlMs * random.between(0, 4), () =>
        sleep(world.ttlMs * random.between(1, 6)),
      );
      await world.untilVoting();
      return { target: node.name };
    },
    // The other nodes are slow for the clients of the old master, so nominations arrive late.
    async 'node-split-slow'(world, random) {
      const [node, ...others] = groupOf(world, random);
      const doors = others.map((other) => world.doors[0]?.nodes[world.nodes.indexOf(other)]);
      await world.failOver(node, world.ttlMs * random.between(0, 4), async () => {
        for (const door of doors) door?.delay('toServer', world.ttlMs * random.between(0.1, 0.5));
        await sleep(world.ttlMs * random.between(4, 12));
        for (const door of doors) door?.delay('toServer', 0);
      });
      await world.untilVoting();
      return { target: node.name };
    },
    // The clients of the old master reach a node that has voted together with the promoted replica.
    // Only the roster of that node shows that the old master is superseded.
    'node-split-late': (world, random) => splitInTwo(world, random, false),
    // As before, but that node has lost its memory, and so its roster, and was readmitted.
    'node-split-wipe': (world, random) => splitInTwo(world, random, true),
    // Clients of the old master readmit a node that has voted together with the replica, and lost
    // its memory. The nodes that these clients reach do not know the last tokens. So the next token
    // is above the clock of a client.
    'node-split-readmit': (world, random) =>
      world.aloneWithClocks(async () => {
        const { node, withOld, withNew, first, second } = halves(world, random);
        for (const other of [withOld, withNew]) first(other, 'swallow');
        await world.failOver(node, world.ttlMs * random.between(0, 4), async () => {
          await world.untilVoting();
          second(withNew, 'swallow');
          await sleep(world.ttlMs * random.between(2, 4));
          second(withOld, 'swallow');
          await withOld.server.kill();
          await withOld.server.start('none');
          for (const other of [withOld, withNew]) first(other, 'release');
          await sleep(world.ttlMs * random.between(4, 8));
          for (const other of [withOld, withNew]) second(other, 'release');
        });
        await world.untilVoting();
        return { target: node.name };
      }),
    // A node restarts with old data, and one other node is stopped. Only the third node may know
    // the last tokens then. With the vote of the first node, the two would be a majority.
    async 'node-rollback-stop'(world, random) {
      const [node, other] = groupOf(world, random);
      const snapshot = await node.server.snapshot();
      await sleep(world.ttlMs * random.between(1, 4));
      await node.server.kill();
      await other.server.pause();
      await node.server.start(snapshot);
      await sleep(world.ttlMs * random.between(1, 4));
      await other.server.wake();
      await rm(snapshot.path, { recursive: true });
      await world.untilVoting();
      return { target: node.name };
    },
    // As before, but a replica that accepts writes takes the place of the node with old data.
    async 'node-replica'(world, random) {
      const [node, other] = groupOf(world, random);
      await world.showReplica(node, world.ttlMs * random.between(1, 4), async () => {
        await other.server.pause();
        await sleep(world.ttlMs * random.between(1, 4));
        await other.server.wake();
      });
      return { target: node.name };
    },
    // Two nodes lose their memory, the second one as soon as the first one votes again. Then the
    // third node is stopped.
    async 'node-pair-loss'(world, random) {
      const [third, ...pair] = groupOf(world, random);
      const servers = pair.map(({ server }) => server);
      const snapshots = random.chance(0.5)
        ? await Promise.all(servers.map((server) => server.snapshot()))
        : [];
      if (snapshots.length > 0) await sleep(world.ttlMs * random.between(1, 4));
      for (const [at, server] of servers.entries()) {
        await server.kill();
        await server.start(snapshots[at] ?? 'none');
        await world.untilVoting();
      }
      await third.server.pause();
      await sleep(world.ttlMs * random.between(1, 4));
      await third.server.wake();
      for (const { path } of snapshots) await rm(path, { recursive: true });
      return { target: pair.map(({ name }) => name).join(' and ') };
    },
    // A write of the node fails in the middle, and ends the server. It restarts with a free disk.
    async 'node-disk-full'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await limitDisk(server, random.between(1, FREE_BYTES_MAX));
      await sleep(world.ttlMs * random.between(1, 4));
      if (server.pid !== undefined) await server.kill();
      await server.start('kept');
      return { target: name };
    },
    // Delays the replies of a node, as a slow disk does under `appendfsync always`.
    async 'node-slow'(world, random) {
      const node = random.pick(world.nodes);
      const doors = world.doors.map(({ nodes }) => nodes[world.nodes.indexOf(node)]);
      const delayMs = world.ttlMs * random.between(0.05, 0.9);
      for (const door of doors) door?.delay('toClient', delayMs);
      await sleep(world.ttlMs * random.between(1, 6));
      for (const door of doors) door?.delay('toClient', 0);
      return { target: node.name };
    },
    async 'node-clock'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await server.setClock(world.ttlMs * random.between(-10, 10));
      await sleep(world.ttlMs * random.between(1, 4));
      await server.setClock(0);
      return { target: name };
    },
    async 'node-memory'(world, random) {
      const { name, server } = random.pick(world.nodes);
      await configure(server, 'maxmemory', '1');
      await sleep(world.ttlMs * random.between(1, 4));
      await configure(server, 'maxmemory', '0');
      return { target: name };
    },
  },
  gateways: {
    async 'gateway-stop'(world, random) {
      const gateway = random.pick(world.gateways);
      await gateway.pause(world.ttlMs * random.between(0.5, 3));
      return { target: gateway.url };
    },
    async 'gateway-kill'(world, random) {
      const gateway = random.pick(world.gateways);
      await gateway.restart('SIGKILL');
      return { target: gateway.url };
    },
  },
  members: MEMBER_FAULTS,
  others: {
    async 'postgres-crash'(world) {
      await world.postgres.crash('SIGKILL');
      return { target: 'postgres' };
    },
    async 'postgres-failover'(world, random) {
      await world.failOverPostgres(world.ttlMs * random.between(1, 4));
      return { target: 'postgres' };
    },
    async 's3-crash'(world) {
      await world.crashS3();
      return { target: 's3' };
    },
    partition: (world, random) => dropped(world, random, BOTH_WAYS),
    'one-way-requests': (world, random) => dropped(world, random, ['toServer']),
    'one-way-replies': (world, random) => dropped(world, random, ['toClient']),
    async 'reply-lost'(world, random) {
      const { door, target } = storeDoor(world, random);
      const before = door.swallowedBytes('toClient');
      door.swallow('toClient');
      await door.untilSwallowed('toClient', { bytesMin: before + 1, ...limit() }).catch(ignore);
      door.heal();
      return { target, bytes: door.swallowedBytes('toClient') - before };
    },
    async 'request-late'(world, random) {
      const { door, target } = storeDoor(world, random);
      door.hold('toServer');
      await door.untilHeld('toServer', limit()).catch(ignore);
      await sleep(world.ttlMs * random.between(0.5, 3));
      const bytes = door.heldBytes('toServer');
      door.release('toServer');
      return { target, bytes };
    },
  },
};

export const FAULT_KINDS: readonly string[] = Object.values(LANES).flatMap(Object.keys);

/**
 * Faults after which two clients may hold valid leases at once. A node's clock jumps, or an old
 * copy of a node takes its place, or answers beside it.
 */
const BREAKS_EXCLUSION = /^node-(?:clock|failover|split|replica)/;

/** The faults under which no two clients may hold valid leases at once. */
export const EXCLUSION_FAULTS: readonly string[] = FAULT_KINDS.filter(
  (kind) => !BREAKS_EXCLUSION.test(kind),
);

/**
 * Makes faults of these kinds until the signal aborts. Returns them in the order in which they
 * ended.
 */
export async function makeFaults(
  world: World,
  { seed, kinds, signal }: { seed: number; kinds: readonly string[]; signal: AbortSignal },
): Promise<readonly Fault[]> {
  const faults: Fault[] = [];
  const lanes: Readonly<Record<string, boolean>> = {
    nodes: world.usesNodes,
    gateways: world.gateways.length > 0,
    members: world.members.length > 0,
  };
  const run = async ([lane, makes]: readonly [string, Readonly<Record<string, Make>>]) => {
    const random = new Random(seed, `faults of ${lane}`);
    const isThere = lanes[lane] ?? true;
    while (isThere && !signal.aborted) {
      const chosen = Object.entries(makes).filter(
        ([kind]) =>
          kinds.includes(kind) &&
          (!(kind.startsWith('node-move') || kind === 'client-mismatch') || world.isMovable),
      );
      if (chosen.length === 0) return;
      const [kind, make] = random.pick(chosen);
      const fromNs = world.recorder.nowNs();
      let made: Awaited<ReturnType<Make>> | null = null;
      try {
        made = await make(world, random);
      } catch (error) {
        if (world.mustRecover) throw error;
      }
      const { target = 'no recovery' } = made ?? {};
      faults.push({ ...made, kind, target, fromNs, toNs: world.recorder.nowNs() });
      // A negative control may never recover. Then its history until this time is judged.
      if (made === null) return;
      await sleep(world.ttlMs * random.between(1, 6), undefined, { signal }).catch(ignore);
    }
  };
  await Promise.all(Object.entries(LANES).map(run));
  return faults;
}

/** True for operations that a fault can disturb, by the first word of the fault's kind. */
const CONCERNED: Readonly<Record<string, (operation: Operation, target: string) => boolean>> = {
  client: ({ process }, target) => process.split('.')[0] === target,
  node: ({ object }) => object.startsWith('lock/'),
  member: ({ object }) => object.startsWith('lock/'),
  postgres: ({ object }) => /^(?:records|table|naive)\//.test(object),
  s3: ({ object }) => object.startsWith('s3/'),
  gateway: () => true,
};

/**
 * True if the fault disturbed an operation. A client was in the middle of one, or a server was down
 * while a client used it, or a proxy discarded or held bytes.
 */
export function tookEffect(fault: Fault, history: readonly Operation[]): boolean {
  const { kind, target, fromNs, toNs, bytes } = fault;
  if (bytes !== undefined) return bytes > 0;
  const isConcerned = CONCERNED[kind.split('-')[0] ?? ''];
  if (!isConcerned) throw new Error(`a fault of an unknown kind: ${kind}`);
  return history.some(
    (one) => isConcerned(one, target) && one.callNs <= toNs && (one.returnNs ?? toNs) >= fromNs,
  );
}

/** Moves the locks. In half of the cases, a node restarts during the move. */
async function moved(
  world: World,
  random: Random,
  killedAfterMs: number | null,
): Promise<Pick<Fault, 'target'>> {
  const node = random.chance(0.5) ? random.pick(world.nodes) : null;
  await world.moveLocks(killedAfterMs, async () => {
    await sleep(random.between(0, MOVE_MS_MAX));
    await node?.server.kill();
    await node?.server.start('kept');
  });
  return { target: node?.name ?? 'all' };
}

async function configure({ url }: LocalRedisNode, name: string, value: string): Promise<void> {
  const client = new Redis(url);
  await client.config('SET', name, value);
  client.disconnect();
}

/** Discards traffic between a group of clients and one or two of the nodes. */
async function dropped(
  world: World,
  random: Random,
  directions: readonly Direction[],
): Promise<Pick<Fault, 'target' | 'bytes'>> {
  const group = random.below(world.doors.length);
  const all = world.doors[group]?.nodes ?? [];
  const from = random.below(all.length);
  const chosen = [...new Set([...all, ...all].slice(from, from + 1 + random.below(2)))];
  const bytes = (): number =>
    chosen.reduce(
      (sum, door) => sum + directions.reduce((n, to) => n + door.swallowedBytes(to), 0),
      0,
    );
  const before = bytes();
  for (const door of chosen) for (const direction of directions) door.swallow(direction);
  await sleep(world.ttlMs * random.between(1, 4));
  for (const door of chosen) door.heal();
  return { target: `group ${group}, ${chosen.length} nodes`, bytes: bytes() - before };
}

/** The nodes of one group, and one of them first. */
function groupOf({ nodes }: World, random: Random): readonly [Node, Node, Node] {
  const chosen = random.below(nodes.length);
  const from = chosen - (chosen % NODES);
  const [a, b, c] = [...nodes.slice(chosen, from + NODES), ...nodes.slice(from, chosen)];
  if (!a || !b || !c) throw new Error('a group has three nodes');
  return [a, b, c];
}

/** A node to split, the two others, and the doors of both halves of the clients. */
function halves(world: World, random: Random) {
  const [node, withOld, withNew] = groupOf(world, random);
  const [first, second] = world.doors.map(
    ({ nodes }) =>
      (of: Node, mode: 'swallow' | 'release') => {
        for (const to of BOTH_WAYS) nodes[world.nodes.indexOf(of)]?.[mode](to);
      },
  );
  if (!first || !second) throw new Error('a split needs two halves of the clients');
  return { node, withOld, withNew, first, second };
}

/**
 * Splits a node into an old master, for the first half of the clients, and a replica. At first,
 * the second half reaches one other node `withNew`, and the first half none. Then the first half
 * reaches the third one, `withOld`.
 *
 * @param isWiped if `withOld` loses its memory when the replica votes, and is readmitted
 */
async function splitInTwo(
  world: World,
  random: Random,
  isWiped: boolean,
): Promise<Pick<Fault, 'target'>> {
  const { node, withOld, withNew, first, second } = halves(world, random);
  for (const other of [withOld, withNew]) first(other, 'swallow');
  await world.failOver(node, world.ttlMs * random.between(0, 4), async () => {
    await world.untilVoting();
    if (isWiped) {
      await withOld.server.kill();
      await withOld.server.start('none');
      await world.untilVoting();
    }
    second(withOld, 'swallow');
    await sleep(world.ttlMs * random.between(2, 4));
    first(withOld, 'release');
    await sleep(world.ttlMs * random.between(4, 8));
    first(withNew, 'release');
    second(withOld, 'release');
  });
  await world.untilVoting();
  return { target: node.name };
}

function storeDoor(world: World, random: Random): { door: TcpProxy; target: string } {
  const group = random.below(world.doors.length);
  const store = random.pick(['s3', 'postgres'] as const);
  const door = world.doors[group]?.[store];
  if (!door) throw new Error(`there is no group ${group}`);
  return { door, target: `group ${group}, ${store}` };
}

function limit(): { signal: AbortSignal } {
  return { signal: AbortSignal.timeout(TRAFFIC_LIMIT_MS) };
}

function ignore(): void {}
