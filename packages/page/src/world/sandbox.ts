import type { Interfere, MessageFault } from '../../../../test/simulation/connection.ts';
import { sleep } from '../../../lock/src/runtime/runtime.ts';
import type { Run } from './run.ts';
import { describe, messageFaults, type Sandbox, type SandboxFault } from './sandbox-fault.ts';
import { work } from './work.ts';
import { type Station, World } from './world.ts';

const TTL_MS = 2_000;
const WAIT_MS = 30_000;
/** Upper bound for the journey of a message. */
const COPY_MAX_MS = 10;
const START_MAX_MS = 400;
/** Time that a client needs between its last check and its write. */
const WORK_MS = { min: 100, max: 900 };

/** Runs two clients, each of which adds its line once, and inflicts the faults. */
export async function runSandbox(sandbox: Sandbox): Promise<Run> {
  const { seed, protection, votesAtOnce, faults } = sandbox;
  const world = new World({ seed, protection, votesAtOnce, nodeCount: 3 });
  await world.useBefore();
  const { schedule } = world;
  const beganMs = schedule.nowMs;
  const pending = new Set(faults.filter(({ kind }) => messageFaults.has(kind)));
  const stations = ([1, 2] as const).map((number) =>
    world.connect(number, '', (place) => interfering(world, pending, { client: number, place })),
  );
  for (const fault of faults) {
    if (pending.has(fault)) continue;
    if (fault.kind === 'rollback' || fault.kind === 'failover') keepData(fault, world, beganMs);
    else schedule.at(beganMs + fault.atMs, () => inflict(fault, world, stations));
  }
  await world.run(Promise.all(stations.map((station) => start(world, station))));
  return world.end(() => null);
}

function start(world: World, station: Station): Promise<void> {
  const { computer, name } = station;
  const random = world.random(`${name} program`);
  const startMs = random.between(0, START_MAX_MS);
  const workMs = random.between(WORK_MS.min, WORK_MS.max);
  const pass = (ms: number): Promise<void> => sleep(computer.runtime, ms);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const begin = (): void => {
    const worker = {
      ...world.worker(station),
      ttlMs: TTL_MS,
      waitMs: WAIT_MS,
      beforeAcquire: () => pass(startMs),
      beforeWrite: () => pass(workMs),
    };
    void work(worker).then(resolve, reject);
  };
  const { schedule } = world;
  schedule.at(schedule.nowMs, () => computer.hand('message', null, begin));
  return promise;
}

/** Applies each fault to the first message that it fits. */
function interfering(
  world: World,
  pending: Set<SandboxFault>,
  { client, place }: { readonly client: 1 | 2; readonly place: string },
): Interfere {
  const node = place === 'storage' ? 's' : place;
  return (direction, sentMs) => {
    const isReply = direction === 'reply';
    const fault = [...pending].find((one) => {
      const isHere = one.client === client && one.node === node && !!one.isReply === isReply;
      return isHere && one.atMs <= world.nowMs;
    });
    if (!fault) return null;
    pending.delete(fault);
    const name = `client ${client}`;
    world.inflicted(isReply ? place : name, describe(fault));
    if (fault.kind === 'drop' && !isReply && node !== 's') world.lost(name, place, sentMs);
    if (fault.kind === 'twice') world.lastsUntil(world.nowMs + fault.ms + COPY_MAX_MS);
    return { kind: fault.kind as MessageFault['kind'], ms: fault.ms };
  };
}

/** Copies the data of a node, and starts a process with the copy later. */
function keepData(fault: SandboxFault, world: World, beganMs: number): void {
  const machine = world.machines.find(({ name }) => name === fault.node);
  if (!machine) return;
  let copy = machine.master?.data.clone();
  const { schedule } = world;
  schedule.at(beganMs + Math.max(0, fault.atMs - fault.ms), () => {
    copy = machine.master?.data.clone() ?? copy;
  });
  schedule.at(beganMs + fault.atMs, () => {
    machine.crash('nothing');
    machine.start();
    for (const [key, fields] of copy?.hashes ?? []) machine.master?.data.hashes.set(key, fields);
    world.inflicted(fault.node, describe(fault));
    world.noticeBrokenConnections();
    void world.readmitByForce();
  });
}

function inflict(fault: SandboxFault, world: World, stations: readonly Station[]): void {
  const { kind, ms, node } = fault;
  const station = stations[fault.client - 1];
  const machine = world.machines.find(({ name }) => name === node);
  if (!station || !machine) return;
  const later = (run: () => void): void => world.schedule.at(world.schedule.nowMs + ms, run);
  const isOfClient = kind === 'delay' || kind === 'lose';
  // A pause is an event of the run, as in the stories.
  if (kind !== 'pause') world.inflicted(isOfClient ? station.name : node, describe(fault));
  else {
    station.computer.pause(ms);
    world.record({ actor: station.name, operation: 'pause', phase: 'ok' });
    later(() => world.record({ actor: station.name, operation: 'wake', phase: 'ok' }));
  }
  if (kind === 'delay') {
    station.link.isHeld = true;
    later(() => station.link.release());
  }
  if (kind === 'lose') {
    station.link.isLossy = true;
    later(() => station.link.cut());
  }
  if (kind === 'block') {
    const connection = station.connections.find((one) => one.machine === machine);
    if (connection) connection.weather.blockedUntilMs = world.schedule.nowMs + ms;
  }
  if (kind === 'wipe') {
    machine.crash('nothing');
    machine.start();
    world.noticeBrokenConnections();
    void world.readmitByForce();
  }
  if (kind === 'jump') machine.clockOffsetMs += ms;
}
