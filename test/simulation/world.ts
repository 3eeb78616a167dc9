import { Redlock } from '../../packages/lock/src/redlock/redlock.ts';
import { Computer } from './computer.ts';
import { type CarriedOut, Connection, type Weather } from './connection.ts';
import { type Fault, planFaults } from './faults.ts';
import { type Acquisition, History } from './history.ts';
import { Machine } from './machine.ts';
import { type Client, Nemesis } from './nemesis.ts';
import type { ModelCall } from './node-model.ts';
import { onUnhandledRejection, realEvents } from './platform.ts';
import { runProgram, type Surroundings } from './program.ts';
import { Random } from './random.ts';
import type { Recorder } from './recorder.ts';
import type { NodeFlaw } from './redis-process.ts';
import { Schedule } from './schedule.ts';
import { type Settings, settingsFor } from './settings.ts';

export interface RunOptions {
  /** Indexes of the planned faults that are left out. */
  readonly without?: ReadonlySet<number>;
  readonly flaws?: ReadonlySet<NodeFlaw>;
  /** Receives each line of the trace. */
  readonly trace?: (line: string) => void;
  /** Records the steps of the protocol at the nodes. The world ends when it is full. */
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
  readonly #clients: Client[];
  readonly #nemesis: Nemesis;
  /** The lock services of all clients, replaced ones too. */
  readonly #redlocks: Redlock[] = [];
  /** Indexes of the clients that have not acquired since the faults ended. */
  readonly #waiting: Set<number>;
  #stranger: Client | null = null;
  #violation: string | null = null;
  #readmissions = 0;
  #writeBacks = 0;
  #lives = 0;
  #isCalm = false;
  #isOver = false;

  constructor(seed: number, options: RunOptions) {
    this.#seed = seed;
    this.#options = options;
    this.#settings = settingsFor(this.#random('settings'));
    const { areNodesSound, areLossesWaitedFor } = this.#settings;
    this.#history = new History(areNodesSound || areLossesWaitedFor);
    this.#faults = planFaults(this.#settings, this.#random('faults'));
    const { nodeCount, clientCount } = this.#settings;
    this.#machines = Array.from({ length: nodeCount }, (_, at) => {
      const name = String.fromCharCode('a'.charCodeAt(0) + at);
      const random = this.#random(`node ${name}`);
      const machine = new Machine(name, this.#schedule, random, options.flaws ?? new Set());
      machine.onMemory = (what) => options.recorder?.changed(machine, what);
      return machine;
    });
    this.#clients = Array.from({ length: clientCount }, (_, at) => this.#startClient(at));
    this.#waiting = new Set(this.#clients.keys());
    this.#nemesis = new Nemesis(this.#machines, this.#clients, this.#settings, this.#schedule, {
      replaceClient: (at) => {
        this.#clients[at]?.computer.kill();
        this.#clients[at] = this.#startClient(at);
      },
    });
  }

  async live(): Promise<Outcome> {
    const end = onUnhandledRejection((error) =>
      this.#violate(`a client crashed: ${String(error)}`),
    );
    try {
      return await this.#live();
    } finally {
      end();
      // Within a world, only promises settle. Real events get their turn here: messages between
      // threads, and the freeing of objects that signals refer to.
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
      faultCount: this.#faults.length,
      recoveryMs: this.#schedule.nowMs - calmAtMs,
    };
    this.#isOver = true;
    for (const { computer } of this.#clients) computer.kill();
    // Node keeps objects that wait for a signal for ever. The world has ended, so nothing awaits
    // these calls.
    for (const redlock of this.#redlocks) void redlock.close();
    return outcome;
  }

  #random(purpose: string): Random {
    return new Random(this.#seed, purpose);
  }

  #startClient(place: number | 'stranger'): Client {
    const { maxTtlMs, durable, firstToken, pauseChance, resends, resourceCount } = this.#settings;
    const { delayChance, delayMaxMs, workerCount, fenceTtlMs } = this.#settings;
    this.#lives += 1;
    const id = `c${place === 'stranger' ? 'X' : place}.${this.#lives}`;
    const computer = new Computer(id, this.#schedule, this.#random(id));
    computer.pauseChance = pauseChance;
    computer.pauseMaxMs = maxTtlMs;
    const machines = place === 'stranger' ? this.#machines.slice(0, 3) : this.#machines;
    const connections = machines.map((machine) => {
      const random = this.#random(`${id} ${machine.name}`);
      const weather: Weather = { delayChance, delayMaxMs, blockedUntilMs: 0 };
      const observe = (event: CarriedOut): void => this.#observe(event);
      const recorder = this.#options.recorder ?? null;
      const parts = { schedule: this.#schedule, random, resends, observe, recorder };
      return new Connection(computer, machine, weather, parts);
    });
    const nodes = connections.map((client) => ({ name: client.machine.name, client, durable }));
    const first = firstToken === null ? {} : { firstToken };
    const redlock = new Redlock({ nodes, maxTtlMs, fenceTtlMs, ...first }, computer.runtime);
    this.#redlocks.push(redlock);
    const surroundings: Surroundings = {
      resources: ['r', 's', 't'].slice(0, resourceCount),
      maxTtlMs,
      waitMs: this.#recoveryMaxMs(),
      isCalm: () => this.#isCalm && place !== 'stranger',
      acquired: (acquisition) => this.#acquired(acquisition, place),
      extended: (acquisition, beganMs, endsMs) => {
        const wrong = this.#history.extend(acquisition, beganMs, endsMs);
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

  #acquired(acquisition: Acquisition, place: number | 'stranger'): void {
    this.#log(() => `${acquisition.client} has ${acquisition.token}`);
    this.#options.recorder?.won(acquisition.client, acquisition.token);
    const wrong = this.#history.add(acquisition);
    if (wrong !== null) this.#violate(wrong);
    if (this.#isCalm && acquisition.beganMs >= this.#settings.calmAtMs && place !== 'stranger') {
      this.#waiting.delete(place);
    }
    // Not earlier: nodes that are not set up yet would become the stranger's.
    if (this.#settings.hasStranger) this.#stranger ??= this.#startClient('stranger');
  }

  #observe({ connection, server, call, answer, how }: CarriedOut): void {
    if (!(answer instanceof Error) && answer[0] === 'admitted') this.#readmissions += 1;
    if (isWriteBack(call) && !(answer instanceof Error) && answer[0] === 'granted') {
      this.#writeBacks += 1;
    }
    this.#log(() => {
      const told = answer instanceof Error ? answer.message.split(' ')[0] : answer.join(' ');
      const resources = call.keys.filter((key) => key.includes('queue:'));
      // Digests and prefixes are the same everywhere, and say nothing.
      const asked = [...resources, ...call.values]
        .map((value) => value.replace(/^[0-9a-f]{40}$/, '#').replace('{fenced}:queue:', ''))
        .join(' ');
      const { computer, machine } = connection;
      const where = `${machine.name}${server === machine.ghost ? "'s old master" : ''}`;
      const late = how === 'late' ? 'late ' : '';
      return `${computer.name} → ${where}: ${late}${call.command} ${asked} = ${told}`;
    });
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
  }

  #isRecovered(): boolean {
    return this.#isCalm && this.#waiting.size === 0 && this.#machines.every((one) => one.voting);
  }

  #whoIsLeft(): string {
    const nodes = this.#machines.filter((one) => !one.voting).map((one) => one.name);
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
