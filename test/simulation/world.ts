import {
  type NextSet,
  Redlock,
  type RedlockConfig,
} from '../../packages/lock/src/redlock/redlock.ts';
import { Computer } from './computer.ts';
import { type CarriedOut, Connection, type Weather } from './connection.ts';
import { type Fault, type FaultKind, planFaults, planLeapsBack } from './faults.ts';
import { HandOvers } from './hand-overs.ts';
import { type Acquisition, History } from './history.ts';
import { Machine } from './machine.ts';
import { MOVERS, type MovePlan, planMove, runMover, type SetPlan, Target } from './moves.ts';
import { type Client, MachineSet, Nemesis } from './nemesis.ts';
import type { ModelCall } from './node-model.ts';
import { onUnhandledRejection, realEvents } from './platform.ts';
import { runProgram, type Surroundings } from './program.ts';
import { Random } from './random.ts';
import type { Recorder } from './recorder.ts';
import type { NodeFlaw } from './redis-process.ts';
import { Schedule } from './schedule.ts';
import { type Settings, settingsFor } from './settings.ts';

/** Restricts the worlds that are drawn from seeds. */
export interface WorldKind {
  /** True for a world in which the locks move to another node set. */
  readonly moves?: boolean;
  /** True for a short world: thousands of them cost as much as hundreds of long ones. */
  readonly short?: boolean;
  /** True for a world of readmissions: see `worldOf`. */
  readonly readmissions?: boolean;
  /** Settings that are fixed. All others are drawn. */
  readonly settings?: Partial<Settings>;
  /** The kinds of faults, in place of drawn ones. */
  readonly faults?: readonly FaultKind[];
}

export interface RunOptions extends WorldKind {
  /** Indexes of the planned faults that are left out. */
  readonly without?: ReadonlySet<number>;
  readonly flaws?: ReadonlySet<NodeFlaw>;
  /** Receives each line of the trace. */
  readonly trace?: (line: string) => void;
  /** Records the steps of the protocol at the nodes. The world ends when the recorder is full. */
  readonly recorder?: Recorder;
}

export interface Outcome {
  readonly seed: number;
  readonly violation: string | null;
  readonly steps: number;
  readonly acquisitions: number;
  readonly readmissions: number;
  /** Number of lost leases that were written back to a node. */
  readonly writeBacks: number;
  /** 1 if the next node set serves at the end, else 0. */
  readonly moves: number;
  /** Number of extensions in the next set of leases that were won in the present one. */
  readonly carried: number;
  readonly excepted: number;
  /** Number of leases that a holder handed over to another one in its process. */
  readonly handOvers: number;
  /** Number of these that began while a node of a set that serves had no vote. */
  readonly handOversBeside: number;
  readonly faultCount: number;
  /**
   * Virtual milliseconds from the end of the faults until recovery: every client has acquired
   * again, and every node votes.
   */
  readonly recoveryMs: number;
}

/** Runs the world of a seed. The same seed gives the same history. */
export function simulate(seed: number, options: RunOptions = {}): Promise<Outcome> {
  return new World(seed, options).live();
}

class World {
  readonly #seed: number;
  readonly #options: RunOptions;
  readonly #settings: Settings;
  readonly #faults: readonly Fault[];
  readonly #schedule = new Schedule();
  readonly #history: History;
  readonly #machines: readonly Machine[];
  readonly #plan: MovePlan | null;
  /** The present node set, then the next ones. */
  readonly #sets: readonly MachineSet[];
  readonly #clients: Client[];
  readonly #movers: (Computer | null)[] = Array(MOVERS).fill(null);
  /** Owner ids of leases that the first node set has granted, before a move. */
  readonly #granted = new Set<string>();
  /** The highest number by which a node took a lost lease back, by owner id. */
  readonly #numbers = new Map<string, bigint>();
  readonly #handOvers = new HandOvers();
  readonly #nemesis: Nemesis;
  /** The lock services of all clients, replaced ones too. */
  readonly #redlocks: Redlock[] = [];
  /** Indexes of the clients that have not acquired since the faults ended. */
  readonly #waiting: Set<number>;
  #stranger: Client | null = null;
  #violation: string | null = null;
  #readmissions = 0;
  #writeBacks = 0;
  #carried = 0;
  #lives = 0;
  #isCalm = false;
  #isOver = false;

  constructor(seed: number, options: RunOptions) {
    this.#seed = seed;
    this.#options = options;
    const drawn = settingsFor(seed, options.short ?? false);
    this.#settings = { ...drawn, ...options.settings };
    const { areNodesSound, areLossesWaitedFor } = this.#settings;
    this.#history = new History(areNodesSound || areLossesWaitedFor);
    const { nodeCount, clientCount } = this.#settings;
    this.#plan = options.moves ? planMove(this.#settings, this.#random('move')) : null;
    const machineCount = this.#plan?.machineCount ?? nodeCount;
    const ordinary = { ...this.#settings, nodeCount: machineCount };
    const faults = planFaults(ordinary, this.#random('faults'), options.faults);
    const leaps = options.faults ? [] : planLeapsBack(ordinary, this.#random('leaps back'));
    this.#faults = [...faults, ...(this.#plan?.faults ?? []), ...leaps];
    const { present, next, other, after } = this.#plan ?? {};
    const plans = [present, next, other, after];
    const sets = plans.filter((plan) => plan != null);
    this.#machines = Array.from({ length: machineCount }, (_, at) => {
      const name = String.fromCharCode('a'.charCodeAt(0) + at);
      const random = this.#random(`node ${name}`);
      const own = sets.filter(({ machines }) => machines.includes(at));
      const prefixes = this.#plan ? [own.map(({ keyPrefix }) => keyPrefix)] : [];
      const flaws = options.flaws ?? new Set();
      const machine = new Machine(name, this.#schedule, random, flaws, ...prefixes);
      machine.onMemory = (what) => options.recorder?.changed(machine, what);
      return machine;
    });
    this.#sets =
      sets.length === 0
        ? [new MachineSet('{fenced}:', this.#machines, false)]
        : sets.map(({ keyPrefix, machines }, at) => {
            const own = machines.flatMap((place) => this.#machines[place] ?? []);
            return new MachineSet(keyPrefix, own, at > 0);
          });
    this.#waiting = new Set(Array(clientCount).keys());
    this.#clients = Array.from({ length: clientCount }, (_, at) => this.#startClient(at));
    const processes = {
      replaceClient: (at: number) => {
        this.#clients[at]?.computer.kill();
        this.#clients[at] = this.#startClient(at);
      },
      startMover: (slot: number, target: number) => this.#startMover(slot, target),
      killMover: (slot: number) => this.#movers[slot]?.kill(),
    };
    this.#nemesis = new Nemesis(
      ...[this.#machines, this.#sets, this.#clients, this.#settings, this.#schedule, processes],
    );
  }

  async live(): Promise<Outcome> {
    const end = onUnhandledRejection((error) =>
      this.#violate(`a client crashed: ${String(error)}`),
    );
    try {
      return await this.#live();
    } finally {
      end();
      // In a world, only promises settle. Between two worlds, real events get their turn: messages
      // between threads, and the freeing of objects that abort signals refer to.
      await realEvents();
    }
  }

  async #live(): Promise<Outcome> {
    const { calmAtMs } = this.#settings;
    this.#log(() => describe(this.#settings));
    for (const [at, fault] of this.#faults.entries()) {
      if (this.#options.without?.has(at)) continue;
      this.#schedule.at(fault.atMs, () => {
        if (this.#nemesis.inflict(fault)) this.#log(() => `fault ${at}: ${name(fault)}`);
      });
    }
    this.#schedule.at(calmAtMs, () => this.#makePeace());
    const endMs = calmAtMs + this.#recoveryMaxMs();
    let steps = 0;
    const { recorder } = this.#options;
    while (!this.#violation && !this.#isRecovered() && (await this.#schedule.step())) {
      if (recorder?.isFull) break;
      steps += 1;
      if (this.#schedule.nowMs > endMs) this.#violate(this.#whoIsLeft());
    }
    const outcome = {
      seed: this.#seed,
      violation: this.#violation,
      steps,
      acquisitions: this.#history.count,
      readmissions: this.#readmissions,
      writeBacks: this.#writeBacks,
      moves: this.#sets.slice(1).some((set) => set.serves) ? 1 : 0,
      carried: this.#carried,
      excepted: this.#history.excepted,
      handOvers: this.#handOvers.count,
      handOversBeside: this.#handOvers.besideCount,
      faultCount: this.#faults.length,
      recoveryMs: this.#schedule.nowMs - calmAtMs,
    };
    this.#isOver = true;
    for (const { computer } of this.#clients) computer.kill();
    for (const computer of this.#movers) computer?.kill();
    // Frees the objects of the world: Node keeps all that still wait for an abort signal. Nothing
    // awaits these calls, because the computers have ended.
    for (const redlock of this.#redlocks) void redlock.close();
    return outcome;
  }

  #random(purpose: string): Random {
    return new Random(this.#seed, purpose);
  }

  #startClient(place: number | 'stranger'): Client {
    const { maxTtlMs, durable, firstToken, pauseChance, resends, resourceCount } = this.#settings;
    const { workerCount, fenceTtlMs, readsOwners } = this.#settings;
    this.#lives += 1;
    const id = `c${place === 'stranger' ? 'X' : place}.${this.#lives}`;
    const computer = new Computer(id, this.#schedule, this.#random(id));
    computer.pauseChance = pauseChance;
    computer.pauseMaxMs = maxTtlMs;
    const machines = place === 'stranger' ? this.#machines.slice(0, 3) : this.#machines;
    const connections = machines.map((machine) => this.#connect(computer, machine, resends));
    const nodes = connections.map((client) => ({ name: client.machine.name, client, durable }));
    const first = firstToken === null ? {} : { firstToken };
    const options = { maxTtlMs, fenceTtlMs, ...first };
    const { plan: chosen = null, isLagging = false } = this.#chooseSets(id) ?? {};
    const sets = chosen ? this.#configOf(chosen, connections) : { nodes };
    const runtime = this.#options.recorder?.watched(computer.runtime) ?? computer.runtime;
    const redlock = new Redlock({ ...sets, ...options }, runtime);
    this.#redlocks.push(redlock);
    if (isLagging && place !== 'stranger') this.#waiting.delete(place);
    const surroundings: Surroundings = {
      resources: ['r', 's', 't'].slice(0, resourceCount),
      maxTtlMs,
      readsOwners,
      waitMs: this.#recoveryMaxMs(),
      isCalm: () => this.#isCalm && place !== 'stranger' && !isLagging,
      acquired: (acquisition) => this.#acquired(acquisition, place),
      extended: (acquisition, beganMs, endsMs) => {
        const number = this.#numbers.get(acquisition.owner) ?? 0n;
        const wrong = this.#history.extend(acquisition, { beganMs, endsMs, number });
        if (wrong !== null) this.#violate(wrong);
      },
      violated: (what) => this.#violate(what),
    };
    const begin = (): void => {
      for (let worker = 1; worker <= workerCount; worker += 1) {
        const random = this.#random(`${id} program ${worker}`);
        void runProgram(computer, redlock, surroundings, random);
      }
    };
    this.#schedule.at(this.#schedule.nowMs, () => computer.hand('message', null, begin));
    return { computer, connections };
  }

  #connect(computer: Computer, machine: Machine, resends: boolean): Connection {
    const { delayChance, delayMaxMs, hasLeaseStrays } = this.#settings;
    const link = `${computer.name} ${machine.name}`;
    const random = this.#random(link);
    const leaseStrays = hasLeaseStrays ? this.#random(`${link} lease strays`) : null;
    const weather: Weather = { delayChance, delayMaxMs, blockedUntilMs: 0 };
    const observe = (event: CarriedOut): void => this.#observe(event);
    const recorder = this.#options.recorder ?? null;
    const parts = { schedule: this.#schedule, random, resends, observe, recorder, leaseStrays };
    return new Connection(computer, machine, weather, parts);
  }

  /**
   * Draws the node sets that a client is configured with. Null in a world without moves.
   * `isLagging`: the client does not know the set that serves in the end.
   */
  #chooseSets(
    id: string,
  ): { readonly plan: readonly SetPlan[]; readonly isLagging: boolean } | null {
    if (!this.#plan) return null;
    const { present, next, other, after } = this.#plan;
    const following = after ? [next, after] : [next];
    const random = this.#random(`${id} sets`);
    const [presentSet, nextSet] = this.#sets;
    // A program with the next set alone is deployed only after the move, or at least its beginning.
    const isEarly = !this.#isCalm && presentSet?.isSealed && this.#settings.losses === 'few';
    const isLate = nextSet?.serves || isEarly;
    const isOther = other !== null;
    if (!this.#isCalm && random.chance(0.15)) return { plan: [present], isLagging: true };
    if (!isOther && isLate && random.chance(0.3)) return { plan: following, isLagging: false };
    const onward = isOther && random.chance(0.3) ? [other] : following;
    return { plan: [present, ...onward], isLagging: isOther };
  }

  #configOf(plans: readonly SetPlan[], connections: readonly Connection[]): RedlockConfig {
    const { durable } = this.#settings;
    const of = ({ keyPrefix, machines }: SetPlan): NextSet => ({
      keyPrefix,
      nodes: machines.flatMap((place) => {
        const client = connections[place];
        return client ? [{ name: client.machine.name, client, durable }] : [];
      }),
    });
    return plans.map(of).reduceRight((next, set) => ({ ...set, next }));
  }

  #startMover(slot: number, target: number, isForced = false): void {
    const { present, next, other, after } = this.#plan ?? {};
    const from = target === Target.after ? next : present;
    const to = { [Target.next]: next, [Target.other]: other, [Target.after]: after }[target];
    if (!from || !to) return;
    this.#movers[slot]?.kill();
    this.#lives += 1;
    const id = `m${slot}.${this.#lives}`;
    const computer = new Computer(id, this.#schedule, this.#random(id));
    this.#movers[slot] = computer;
    const { maxTtlMs, fenceTtlMs, pauseChance } = this.#settings;
    if (!this.#isCalm) computer.pauseChance = pauseChance;
    computer.pauseMaxMs = maxTtlMs;
    const resends = this.#random(id).chance(0.5);
    const connections = this.#machines.map((one) => this.#connect(computer, one, resends));
    if (this.#isCalm) for (const { weather } of connections) weather.delayChance = 0;
    const config = { ...this.#configOf([from, to], connections), maxTtlMs, fenceTtlMs };
    const redlock = new Redlock(config, computer.runtime);
    this.#redlocks.push(redlock);
    const begin = (): void => void runMover(computer, redlock, isForced);
    this.#schedule.at(this.#schedule.nowMs, () => computer.hand('message', null, begin));
  }

  #acquired(acquisition: Acquisition, place: number | 'stranger'): void {
    this.#log(() => `${acquisition.client} has ${acquisition.token}`);
    this.#options.recorder?.won(acquisition.client, acquisition.token);
    const isNodeWithoutVote = this.#sets.some((set) => set.serves && !set.isWhole);
    this.#handOvers.acquired(acquisition, isNodeWithoutVote);
    const wrong = this.#history.add(acquisition);
    if (wrong !== null) this.#violate(wrong);
    if (this.#isCalm && acquisition.beganMs >= this.#settings.calmAtMs && place !== 'stranger') {
      this.#waiting.delete(place);
    }
    // The stranger starts only now: it would set up new nodes under its own node names.
    const hasStranger = this.#settings.hasStranger && !this.#plan;
    if (hasStranger) this.#stranger ??= this.#startClient('stranger');
  }

  #wroteBack({ values: [owner = '', , number = '0'] }: ModelCall): void {
    this.#writeBacks += 1;
    const highest = this.#numbers.get(owner) ?? 0n;
    if (BigInt(number) > highest) this.#numbers.set(owner, BigInt(number));
  }

  #observe({ connection, server, call, answer, how }: CarriedOut): void {
    const outcome = answer instanceof Error ? null : answer[0];
    if (outcome === 'admitted') this.#readmissions += 1;
    if (outcome === 'granted' && isWriteBack(call)) this.#wroteBack(call);
    if (this.#plan) this.#countCarried(call, answer);
    if (!(answer instanceof Error) && outcome === 'granted') this.#handOvers.granted(call, answer);
    this.#log(() => {
      const told = answer instanceof Error ? answer.message.split(' ')[0] : answer.join(' ');
      const resources = call.keys.filter((key) => key.includes('queue:'));
      // Leaves out digests and key prefixes, which are the same in all lines.
      const asked = [...resources, ...call.values]
        .map((value) => value.replace(/^[0-9a-f]{40}$/, '#').replace('{fenced}:queue:', ''))
        .join(' ');
      const { computer, machine } = connection;
      const where = `${machine.name}${server === machine.ghost ? "'s old master" : ''}`;
      const late = how === 'late' ? 'late ' : '';
      return `${computer.name} → ${where}: ${late}${call.command} ${asked} = ${told}`;
    });
  }

  #countCarried({ command, keys, values }: ModelCall, answer: CarriedOut['answer']): void {
    const [owner = ''] = values;
    const isPresent = keys[0]?.startsWith(this.#plan?.present.keyPrefix ?? '');
    if (answer instanceof Error || isPresent === undefined) return;
    if (isPresent && command === 'acquire' && answer[0] === 'granted') this.#granted.add(owner);
    const isExtended = command === 'extend' && answer[0] === 'extended';
    if (!isPresent && isExtended && this.#granted.has(owner)) this.#carried += 1;
  }

  /**
   * Upper bound for a recovery: the recovery wait, the rest of a lease, the jumps of clocks that
   * went back, and some rounds of requests.
   */
  #recoveryMaxMs(): number {
    const backMs = this.#faults
      .filter(({ kind }) => kind === 'leap-back')
      .reduce((sum, { ms }) => sum + ms, 0);
    return Math.ceil(10 * this.#settings.maxTtlMs + backMs + 20_000);
  }

  #makePeace(): void {
    this.#isCalm = true;
    this.#log(() => 'all is well');
    this.#nemesis.makePeace(this.#stranger);
    if (this.#plan) this.#endMoves(this.#plan);
  }

  /** Ends the clients that know only the old set. If a move was interrupted, finishes it. */
  #endMoves({ other, after }: MovePlan): void {
    for (const [slot, computer] of this.#movers.entries()) {
      computer?.kill();
      this.#movers[slot] = null;
    }
    for (const [at, { computer }] of this.#clients.entries()) {
      computer.kill();
      this.#clients[at] = this.#startClient(at);
      for (const { weather } of this.#clients[at]?.connections ?? []) weather.delayChance = 0;
      if (this.#clients[at]) this.#clients[at].computer.pauseChance = 0;
    }
    const [present, next] = this.#sets;
    // If the old set cannot serve any more, clients finish the move. Otherwise a mover must.
    const isSealed = present?.isSealed && (present.serves || this.#random('end').chance(0.3));
    if (isSealed && !other) this.#startMover(0, Target.next);
    if (after && next?.isSealed) this.#startMover(1, Target.after);
  }

  #isRecovered(): boolean {
    if (!this.#isCalm || this.#waiting.size > 0) return false;
    if (!this.#plan) return this.#sets[0]?.isWhole ?? false;
    // Two rival moves may each seal half of the nodes. Then no lock is granted any more, and only
    // safety is promised.
    const { calmAtMs, maxTtlMs } = this.#settings;
    if (this.#plan.other) return this.#schedule.nowMs > calmAtMs + 3 * maxTtlMs;
    return this.#sets.some((set) => set.serves);
  }

  #whoIsLeft(): string {
    const nodes = this.#machines.filter((one) => !one.votes()).map((one) => one.name);
    return `after all was well for long: clients without a lease [${[...this.#waiting]}], nodes without a vote [${nodes}]`;
  }

  #violate(what: string): void {
    if (this.#isOver) return;
    this.#log(() => `VIOLATION: ${what}`);
    this.#violation ??= what;
  }

  #log(line: () => string): void {
    this.#options.trace?.(`${this.#schedule.nowMs.toFixed(3).padStart(10)} ${line()}`);
  }
}

/** True for a BACKFILL that names an incarnation, which only a write-back does. */
function isWriteBack({ command, values }: ModelCall): boolean {
  return command === 'backfill' && values.length > 4;
}

function describe(settings: Settings): string {
  const facts = Object.entries(settings).map(([key, value]) => `${key}=${String(value)}`);
  return `world: ${facts.join(' ')}`;
}

function name({ kind, node, client, ms, memory }: Fault): string {
  return `${kind} node=${String.fromCharCode('a'.charCodeAt(0) + node)} client=c${client} ms=${ms.toFixed(1)} memory=${memory}`;
}
