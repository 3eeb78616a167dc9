import { setTimeout as sleep } from 'node:timers/promises';
import type { Make } from './fault.ts';

/** Faults of the members of etcd and ZooKeeper. Each member keeps what it has stored. */
export const MEMBER_FAULTS: Readonly<Record<string, Make>> = {
  async 'member-stop'(world, random) {
    const { name, server } = random.pick(world.members);
    await server.pause();
    await sleep(world.ttlMs * random.between(0.5, 3));
    await server.wake();
    return { target: name };
  },
  async 'member-kill'(world, random) {
    const { name, server } = random.pick(world.members);
    await server.kill();
    await sleep(world.ttlMs * random.between(0, 2));
    await server.start();
    return { target: name };
  },
  // No member answers until a majority has started again.
  async 'member-kill-all'(world) {
    const servers = world.members.map(({ server }) => server);
    await Promise.all(servers.map((server) => server.kill()));
    // A member of etcd answers only once a majority has started.
    await Promise.all(servers.map((server) => server.start()));
    return { target: 'all' };
  },
  async 'member-slow'(world, random) {
    const member = random.pick(world.members);
    const doors = world.doors.map(({ nodes }) => nodes[world.members.indexOf(member)]);
    for (const door of doors) door?.delay('toClient', world.ttlMs * random.between(0.05, 0.5));
    await sleep(world.ttlMs * random.between(1, 3));
    for (const door of doors) door?.delay('toClient', 0);
    return { target: member.name };
  },
};
