import { majorityOf } from '../../packages/lock/src/core/quorum.ts';
import type { Computer } from './computer.ts';
import type { Connection } from './connection.ts';
import type { Fault } from './faults.ts';
import type { Machine } from './machine.ts';
import type { Schedule } from './schedule.ts';
import type { Settings } from './settings.ts';

/** One client process and its connections. */
export interface Client {
  readonly computer: Computer;
  readonly connections: readonly Connection[];
}

/** The processes that faults start and end. */
interface Processes {
  readonly replaceClient: (at: number) => void;
  /** @param target the set to move to, as `Target` numbers them */
  readonly startMover: (slot: number, target: number) => void;
  readonly killMover: (slot: number) => void;
}

/** The machines of one node set. */
export class MachineSet {
  readonly keyPrefix: string;
  readonly machines: readonly Machine[];
  readonly #startsByMove: boolean;

  constructor(keyPrefix: string, machines: readonly Machine[], startsByMove: boolean) {
    this.keyPrefix = keyPrefix;
    this.machines = machines;
    this.#startsByMove = startsByMove;
  }

  /** True for a next set that has not started yet: no machine remembers a vote in it. */
  get isNew(): boolean {
    return (
      this.#startsByMove &&
      this.machines.every((one) => Number(one.fact('generation', this.keyPrefix) ?? 0) === 0)
    );
  }

  get isSealed(): boolean {
    return this.machines.some(this.seals);
  }

  get awaitsMove(): boolean {
    return this.machines.some((one) => this.awaits(one));
  }

  /** True if a majority votes. */
  get serves(): boolean {
    const voters = this.machines.filter((one) => one.votes(this.keyPrefix));
    return voters.length >= majorityOf(this.machines.length);
  }

  get isWhole(): boolean {
    return this.machines.every((one) => one.votes(this.keyPrefix));
  }

  readonly seals = (machine: Machine): boolean =>
    machine.fact('next_set', this.keyPrefix) !== undefined;

  awaits(machine: Machine): boolean {
    return machine.fact('awaits', this.keyPrefix) !== undefined;
  }
}

/** Inflicts faults, and ends them all in the calm phase. */
export class Nemesis {
  readonly #machines: readonly Machine[];
  readonly #sets: readonly MachineSet[];
  readonly #clients: readonly Client[];
  readonly #settings: Settings;
  readonly #schedule: Schedule;
  readonly #world: Processes;

  constructor(
    machines: readonly Machine[],
    sets: readonly MachineSet[],
    clients: readonly Client[],
    settings: Settings,
    schedule: Schedule,
    world: Processes,
  ) {
    this.#machines = machines;
    this.#sets = sets;
    this.#clients = clients;
    this.#settings = settings;
    this.#schedule = schedule;
    this.#world = world;
  }

  /** @returns false if the fault is impossible now, or breaks an assumption of the protocol */
  inflict(fault: Fault): boolean {
    const machine = this.#machines[fault.node];
    const client = this.#clients[fault.client];
    if (!machine || !client) throw new Error('a fault of what is not there');
    if (losesMemory(fault, machine) && !this.#mayLoseMemory(machine)) return false;
    if (fault.kind === 'failover' && !this.#mayHaveGhost(machine)) return false;
    if (fault.kind === 'wall-jump' && this.#settings.losses === 'any') return false;
    this.#ofNode(fault, machine);
    this.#ofClient(fault, client);
    for (const { connections } of this.#clients) {
      for (const connection of connections) connection.notice();
    }
    return true;
  }

  makePeace(stranger: Client | null): void {
    for (const machine of this.#machines) {
      machine.start();
      machine.promote();
      machine.buryGhost();
      machine.fill(false);
    }
    stranger?.computer.kill();
    for (const { computer, connections } of this.#clients) {
      computer.pauseChance = 0;
      for (const connection of connections) {
        connection.weather.delayChance = 0;
        connection.weather.blockedUntilMs = 0;
        connection.notice();
      }
    }
  }

  /**
   * False if the loss would break an assumption of the protocol. It assumes that fewer than a
   * majority of the nodes are without memory at one time, or that the wall clock is right. A node
   * with an old master counts as one without memory, because some clients find old data there.
   */
  #mayLoseMemory(machine: Machine): boolean {
    if (!this.#mayLoseSeal(machine)) return false;
    if (this.#settings.losses === 'any') return true;
    return this.#sets.every((set) => {
      if (!set.machines.includes(machine)) return true;
      const others = set.machines.filter((one) => one !== machine);
      if (set.isNew) return !set.awaitsMove || others.some((one) => set.awaits(one));
      const forgetful = others.filter((one) => one.isWithoutMemory(set.keyPrefix) || one.ghost);
      return forgetful.length + 1 < majorityOf(set.machines.length);
    });
  }

  /**
   * False if no node of a sealed set would remember the seal, so that the set could start again. A
   * node with an old master does not count, because the old master may not be sealed.
   */
  #mayLoseSeal(machine: Machine): boolean {
    return this.#sets.every((set) => {
      const others = set.machines.filter((one) => one !== machine);
      return (
        !set.isSealed ||
        !set.machines.includes(machine) ||
        others.some((one) => set.seals(one) && !one.ghost)
      );
    });
  }

  /** False if old masters would be a majority: they could grant locks for ever, and not notice. */
  #mayHaveGhost(machine: Machine): boolean {
    if (!this.#mayLoseMemory(machine)) return false;
    return this.#sets.every(({ machines }) => {
      if (!machines.includes(machine)) return true;
      const others = machines.filter((one) => one !== machine && one.ghost);
      return others.length + 1 < majorityOf(machines.length);
    });
  }

  #ofNode({ kind, ms, memory }: Fault, machine: Machine): void {
    if (kind === 'save') machine.save();
    if (kind === 'crash') {
      machine.crash(memory);
      this.#schedule.at(this.#schedule.nowMs + ms, () => machine.start());
    }
    if (kind === 'failover') machine.failOver(memory);
    if (kind === 'bury-ghost') machine.buryGhost();
    if (kind === 'replica-for-a-while') {
      machine.becomeReplica();
      const { nowMs } = this.#schedule;
      for (const times of [1, 2, 3])
        this.#schedule.at(nowMs + times * ms, () => machine.replicate());
      this.#schedule.at(nowMs + 4 * ms, () => machine.promote());
    }
    if (kind === 'flush') machine.flush();
    if (kind === 'lose-lock') machine.lose('lock');
    if (kind === 'lose-record') machine.lose('record');
    if (kind === 'lose-node') machine.loseNode(memory === 'snapshot' ? 'before' : 'node');
    if (kind === 'full') {
      machine.fill(true);
      this.#schedule.at(this.#schedule.nowMs + ms, () => machine.fill(false));
    }
    if (kind === 'leap-forward') machine.clockOffsetMs += 2 * ms;
    if (kind === 'leap-back') machine.clockOffsetMs -= ms;
  }

  #ofClient({ kind, ms, node, client: at }: Fault, client: Client): void {
    const connection = client.connections[node];
    if (kind === 'cut') connection?.cut();
    if (kind === 'block' && connection) {
      connection.weather.blockedUntilMs = this.#schedule.nowMs + ms;
    }
    if (kind === 'pause') client.computer.pause(ms);
    if (kind === 'wall-jump') client.computer.wallOffsetMs += ms;
    if (kind === 'kill-client') this.#world.replaceClient(at);
    if (kind === 'start-mover') this.#world.startMover(at, node);
    if (kind === 'kill-mover') this.#world.killMover(at);
  }
}

function losesMemory({ kind, memory }: Fault, machine: Machine): boolean {
  if (['flush', 'lose-node', 'replica-for-a-while'].includes(kind)) return true;
  if (kind === 'bury-ghost') return machine.isGhostLatest;
  return (kind === 'crash' || kind === 'failover') && memory !== 'all';
}
