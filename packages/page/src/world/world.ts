import {
  type CarriedOut,
  Connection,
  type Interfere,
  type Weather,
} from '../../../../test/simulation/connection.ts';
import { Machine } from '../../../../test/simulation/machine.ts';
import type { Client } from '../../../../test/simulation/nemesis.ts';
import { recordOf } from '../../../../test/simulation/node-lock-table.ts';
import { Random } from '../../../../test/simulation/random.ts';
import { Schedule, settled } from '../../../../test/simulation/schedule.ts';
import { checkHistory } from '../../../demo/src/checker.ts';
import type { Event, Lane } from '../../../demo/src/history.ts';
import { isFenced, type Protection } from '../../../demo/src/job.ts';
import { nodeKeys } from '../../../lock/src/redis/node-keys.ts';
import { Redlock } from '../../../lock/src/redlock/redlock.ts';
import { DocumentStore } from './document-store.ts';
import { Link } from './link.ts';
import { messagesOf } from './messages.ts';
import { Process } from './process.ts';
import type { Inflicted, Message, NodeLease, Place, Run } from './run.ts';
import type { Worker } from './work.ts';

export const TTL_MAX_MS = 10_000;
/** A run that takes longer fails. */
const LIMIT_MS = 120_000;
/** Interval at which a script reads the state of the nodes. */
const POLL_MS = 2;
/** In Kleppmann's article, the first client holds token 33. */
const FIRST_TOKEN = 33n;
const KEYS = nodeKeys('{fenced}:');
const QUEUE = '{fenced}:queue:document';

export type ClientNumber = 1 | 2;

export interface WorldOptions {
  readonly seed: number;
  readonly nodeCount: number;
  readonly protection: Protection;
  /** An operator forces nodes that forgot their leases to vote at once. */
  readonly votesAtOnce: boolean;
  readonly ignoresConditions?: boolean;
}

/** A client's process, with its network and its lock service. */
export interface Station<Name extends string = `client ${ClientNumber}`> extends Client {
  readonly name: Name;
  readonly computer: Process;
  readonly redlock: Redlock;
  readonly link: Link;
}

/** Clients with the shipping lock service, model nodes and one document, in simulated time. */
export class World {
  readonly schedule: Schedule = new Schedule();
  readonly machines: readonly Machine[];
  readonly events: Event[] = [];
  readonly #options: WorldOptions;
  readonly #store: DocumentStore;
  readonly #stations: Station[] = [];
  readonly #carriedOut: CarriedOut[] = [];
  readonly #messages: Message[] = [];
  readonly #leases: NodeLease[] = [];
  readonly #faults: Inflicted[] = [];
  readonly #listeners = new Set<(event: Event) => void>();
  #beganMs = 0;
  #lastsUntilMs = 0;

  constructor(options: WorldOptions) {
    this.#options = options;
    this.#store = new DocumentStore(options.ignoresConditions ?? false);
    this.machines = Array.from({ length: options.nodeCount }, (_, at) => {
      const name = String.fromCharCode('a'.charCodeAt(0) + at);
      return new Machine(name, this.schedule, this.random(`node ${name}`), new Set());
    });
  }

  get nowMs(): number {
    return this.schedule.nowMs - this.#beganMs;
  }

  get isFenced(): boolean {
    return isFenced(this.#options.protection);
  }

  random(purpose: string): Random {
    return new Random(this.#options.seed, purpose);
  }

  /** Brings the nodes into a state of long use: the document's next token is 33. */
  async useBefore(): Promise<void> {
    const used = this.#aside('set-up', FIRST_TOKEN - 1n, async (redlock) => {
      const lease = await redlock.acquire('another', { ttlMs: 1_000, waitMs: 10_000 });
      await lease.release();
    });
    await this.run(used);
    this.#beganMs = this.schedule.nowMs;
  }

  /** If `votesAtOnce` is set, plays an operator who forces all nodes to vote. */
  async readmitByForce(): Promise<void> {
    if (!this.#options.votesAtOnce) return;
    this.inflicted('lock nodes', 'an operator forces the vote');
    await this.#aside('operator', null, (redlock) => redlock.readmit({ force: true }));
  }

  /**
   * Connects a client's process.
   *
   * @param unreachable letters of nodes
   * @param interfere returns the faults of the messages between the client and a place: a node, or
   *   the storage
   */
  connect(
    number: ClientNumber,
    unreachable = '',
    interfere: (place: Place) => Interfere = () => () => null,
  ): Station {
    const id = `client ${number}, process ${this.#stations.length}`;
    const station = this.#connect(`client ${number}`, { id, firstToken: null, interfere });
    for (const { machine, weather } of station.connections) {
      if (unreachable.includes(machine.name)) weather.blockedUntilMs = Number.MAX_SAFE_INTEGER;
    }
    this.#stations.push(station);
    return station;
  }

  /** The part of a client's work that the world knows. */
  worker({
    name,
    computer,
    redlock,
    link,
  }: Station): Omit<Worker, 'ttlMs' | 'waitMs' | 'beforeAcquire' | 'beforeWrite'> {
    const { protection } = this.#options;
    return {
      line: name,
      protection,
      computer,
      redlock,
      link,
      store: this.#store,
      report: (operation, phase, facts = {}) =>
        this.record({ actor: name, operation, phase, ...facts }, computer.trueMs),
    };
  }

  record(fact: Omit<Event, 'atMs'>, trueMs: number = this.schedule.nowMs): void {
    const event = { atMs: trueMs - this.#beganMs, ...fact };
    this.events.push(event);
    for (const listener of this.#listeners) listener(event);
  }

  noticeBrokenConnections(): void {
    for (const { connections } of this.#stations) {
      for (const connection of connections) connection.notice();
    }
  }

  /** Shows a message that a fault has lost. `sentMs` is a time of the schedule. */
  lost(from: Place, to: Place, sentMs: number): void {
    this.#messages.push({ from, to, sentMs, arrivedMs: null, label: 'lost', tone: 'plain' });
  }

  /** Records a fault, for its chip. */
  inflicted(place: Place, text: string): void {
    this.#faults.push({ atMs: this.nowMs, place, text });
  }

  /** Resolves after `times` events of this actor, operation and phase. */
  recorded(actor: Lane, operation: Event['operation'], phase: Event['phase'], times: number) {
    let missing = times;
    return new Promise<void>((resolve) => {
      this.#listeners.add((event) => {
        if (event.actor !== actor || event.operation !== operation || event.phase !== phase) return;
        missing -= 1;
        if (missing === 0) resolve();
      });
    });
  }

  /** The owner of the lease that a node holds by its own clock, or undefined. */
  ownerAt({ master }: Machine): string | undefined {
    return master ? recordOf(master, KEYS, QUEUE).owner : undefined;
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await this.pass(POLL_MS);
  }

  pass(ms: number): Promise<void> {
    return new Promise((resolve) => this.schedule.at(this.schedule.nowMs + ms, resolve));
  }

  /** Lets the run last until a time, although the clients have ended. */
  lastsUntil(ms: number): void {
    this.#lastsUntilMs = Math.max(this.#lastsUntilMs, ms);
  }

  /** Lets the time pass until the script ends. @throws if it does not end in time */
  async run(script: Promise<unknown>): Promise<void> {
    let isOver = false;
    const over = script
      .then(() => this.until(() => this.nowMs >= this.#lastsUntilMs))
      .finally(() => {
        isOver = true;
      });
    over.catch(() => {});
    await settled();
    while (!isOver && this.nowMs < LIMIT_MS && (await this.schedule.step())) {
      await settled();
      this.#lookAtLeases();
    }
    if (!isOver) throw new Error(`the run did not end within ${LIMIT_MS} simulated ms`);
    await over;
  }

  /** @param missing the step without which the story did not happen */
  end(missing: (events: readonly Event[]) => string | null): Run {
    const { lines, base } = this.#store.read();
    this.record({
      actor: 'storage',
      operation: 'final',
      phase: 'ok',
      lines,
      ...(this.isFenced && base && { token: `${base.token}` }),
    });
    for (const { computer, redlock } of this.#stations) {
      computer.kill();
      void redlock.close();
    }
    const events = this.events.toSorted((a, b) => a.atMs - b.atMs);
    return {
      nodes: this.machines.map(({ name }) => name),
      events,
      messages: [...this.#messages, ...messagesOf(this.#carriedOut)]
        .map((message) => this.#sinceBegin(message))
        .sort((a, b) => a.sentMs - b.sentMs),
      leases: this.#leases,
      faults: this.#faults,
      verdict: checkHistory(events, missing(events)),
      endMs: this.nowMs,
    };
  }

  #sinceBegin(message: Message): Message {
    const { sentMs, arrivedMs } = message;
    return {
      ...message,
      sentMs: sentMs - this.#beganMs,
      arrivedMs: arrivedMs === null ? null : arrivedMs - this.#beganMs,
    };
  }

  #connect<Name extends string>(
    name: Name,
    parts: {
      readonly id: string;
      readonly firstToken: bigint | null;
      readonly interfere?: (place: Place) => Interfere;
    },
  ): Station<Name> {
    const { schedule } = this;
    const { id, firstToken, interfere = () => () => null } = parts;
    const computer = new Process(name, schedule, this.random(id));
    const connections = this.machines.map((machine) => {
      const weather: Weather = { delayChance: 0, delayMaxMs: 0, blockedUntilMs: 0 };
      const random = this.random(`${id} ${machine.name}`);
      const observe = (event: CarriedOut): void => {
        if (name.startsWith('client')) this.#carriedOut.push(event);
      };
      return new Connection(computer, machine, weather, {
        schedule,
        random,
        resends: true,
        observe,
        interfere: interfere(machine.name),
      });
    });
    const nodes = connections.map((client) => ({ name: client.machine.name, client }));
    const redlock = new Redlock(
      { nodes, maxTtlMs: TTL_MAX_MS, ...(firstToken !== null && { firstToken }) },
      computer.runtime,
    );
    const sent = (message: Message): void => void this.#messages.push(message);
    const link = new Link(name, computer, {
      schedule,
      random: this.random(`${id} link`),
      sent,
      interfere: interfere('storage'),
    });
    return { name, computer, connections, redlock, link };
  }

  /** Runs a program beside the clients. */
  async #aside(
    name: string,
    firstToken: bigint | null,
    program: (redlock: Redlock) => Promise<unknown>,
  ): Promise<void> {
    const { redlock, computer } = this.#connect(name, { id: name, firstToken });
    await new Promise<void>((resolve, reject) => {
      const begin = (): void => void program(redlock).then(() => resolve(), reject);
      this.schedule.at(this.schedule.nowMs, () => computer.hand('message', null, begin));
    });
    computer.kill();
    void redlock.close();
  }

  /** Notes what each node says about the lock. */
  #lookAtLeases(): void {
    for (const machine of this.machines) {
      const owner = this.ownerAt(machine);
      const client = owner === undefined ? null : owner.slice(0, 'client 1'.length);
      const open = this.#leases.find((lease) => lease.node === machine.name && !lease.untilMs);
      if ((open?.client ?? null) === client) continue;
      if (open) open.untilMs = this.nowMs;
      if (client === null) continue;
      this.#leases.push({ node: machine.name, client, fromMs: this.nowMs, untilMs: null });
    }
  }
}
