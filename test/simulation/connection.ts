import type {
  IoredisClient,
  IoredisSubscriber,
} from '../../packages/lock/src/redis/clients/ioredis.ts';
import type { Computer } from './computer.ts';
import type { Machine } from './machine.ts';
import {
  type ModelCall,
  type ModelCommand,
  type ModelRequest,
  type NodeModel,
  type Reply,
  requestIn,
  written,
} from './node-model.ts';
import type { Random } from './random.ts';
import type { Recorder } from './recorder.ts';
import type { Schedule } from './schedule.ts';

/** The present behaviour of the network between one client and one node. */
export interface Weather {
  /** Chance of a delay of up to `delayMaxMs`. */
  delayChance: number;
  delayMaxMs: number;
  /** Nothing gets through before this time, in either direction. */
  blockedUntilMs: number;
}

/** The true times of a request and its reply. */
export interface Journey {
  readonly sentMs: number;
  readonly arrivedMs: number;
  /** The time at which the client reads the reply. Null until then. */
  repliedMs: number | null;
}

/**
 * Commands that change which nodes vote. A second copy of them, a stray, may arrive very late: the
 * network has held up the data of an earlier connection.
 */
const strays: ReadonlySet<ModelCommand> = new Set([
  ...(['inspect', 'promise', 'admit', 'retire'] as const),
  ...(['seal', 'prepare', 'carry'] as const),
]);
/** Commands of a lease. In some worlds, strays of these arrive, too. */
const leaseStrays: ReadonlySet<ModelCommand> = new Set([
  ...(['acquire', 'confirm', 'backfill', 'extend', 'release'] as const),
]);
const STRAY_CHANCE = 0.05;
/** Chance that a published message is lost. */
const LOSS_CHANCE = 0.1;
/** The largest delay of a stray, as a multiple of an ordinary delay. */
const STRAY_DELAYS = 30;

/** A call that a node has carried out. Its reply may be lost. */
export interface CarriedOut {
  readonly connection: Connection;
  readonly server: NodeModel;
  readonly call: ModelCall;
  readonly answer: Reply | Error;
  readonly journey: Journey;
  /** `late`: the call has arrived after its connection was broken. */
  readonly how: 'in time' | 'late';
}

/**
 * A fault of one message. `drop`: it is lost, and the connection breaks. `late`: it arrives `ms`
 * later. `twice`: it arrives once more, `ms` later.
 */
export interface MessageFault {
  readonly kind: 'drop' | 'late' | 'twice';
  readonly ms: number;
}

/** Decides about each message when it is sent. */
export type Interfere = (direction: 'request' | 'reply', sentMs: number) => MessageFault | null;

type Values = readonly (string | number)[];

interface Request extends ModelRequest {
  readonly command: 'evalsha' | 'eval';
  /** The digest of the script, or its source. */
  readonly asked: string;
  readonly resolve: (answer: string) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A client's connection to a node, like that of ioredis. Requests arrive in order, and so do
 * replies, until the connection breaks. Then the client does not know which requests were carried
 * out. It makes another connection. Requests without a reply are sent again, or fail. Requests that
 * were under way may still arrive later, even after the repeated ones.
 */
export class Connection implements IoredisClient {
  readonly computer: Computer;
  readonly machine: Machine;
  readonly weather: Weather;
  readonly #schedule: Schedule;
  readonly #random: Random;
  readonly #resends: boolean;
  readonly #observe: (event: CarriedOut) => void;
  readonly #recorder: Recorder | null;
  readonly #interfere: Interfere;
  readonly #leaseStrays: Random | null;
  readonly isCluster = false;
  #server: NodeModel | null;
  /** Number of the present connection. A reply with another number belongs to a broken one. */
  #life = 0;
  #unanswered: Request[] = [];
  #lastArrivalMs = 0;
  #lastReplyMs = 0;

  /** @param resends true if requests without a reply are sent again, which is ioredis' default */
  constructor(
    computer: Computer,
    machine: Machine,
    weather: Weather,
    parts: {
      schedule: Schedule;
      random: Random;
      resends: boolean;
      observe: (event: CarriedOut) => void;
      recorder?: Recorder | null;
      interfere?: Interfere;
      /** Draws the strays of a lease's commands. Null if there are none. */
      leaseStrays?: Random | null;
    },
  ) {
    this.computer = computer;
    this.machine = machine;
    this.weather = weather;
    this.#schedule = parts.schedule;
    this.#random = parts.random;
    this.#resends = parts.resends;
    this.#observe = parts.observe;
    this.#recorder = parts.recorder ?? null;
    this.#interfere = parts.interfere ?? (() => null);
    this.#leaseStrays = parts.leaseStrays ?? null;
    this.#server = machine.master;
    if (!this.#server) this.#reconnectLater();
  }

  evalsha(sha1: string, keyCount: number, ...values: Values): Promise<unknown> {
    return this.#request('evalsha', sha1, requestIn(keyCount, values));
  }

  eval(source: string, keyCount: number, ...values: Values): Promise<unknown> {
    return this.#request('eval', source, requestIn(keyCount, values));
  }

  duplicate(): IoredisSubscriber {
    return new Subscriber(this, this.#schedule, this.#random);
  }

  /** Milliseconds until a message that is sent now arrives. */
  latencyMs(): number {
    const { delayChance, delayMaxMs, blockedUntilMs } = this.weather;
    const usualMs = this.#random.between(0.1, 1);
    const extraMs = this.#random.chance(delayChance) ? this.#random.between(0, delayMaxMs) : 0;
    return Math.max(0, blockedUntilMs - this.#schedule.nowMs) + usualMs + extraMs;
  }

  /** Breaks the connection. */
  cut(): void {
    if (!this.#server) return;
    this.#server = null;
    this.#life += 1;
    this.#reconnectLater();
  }

  /** Breaks the connection if its server is gone. */
  notice(): void {
    if (this.#server && !this.#server.alive) this.cut();
  }

  #request(command: Request['command'], asked: string, model: ModelRequest): Promise<string> {
    if (model.calls.some((call) => call.command === 'acquire')) this.computer.noteRequest();
    return new Promise((resolve, reject) => {
      const request = { ...model, command, asked, resolve, reject };
      this.#recorder?.asked(this, request, model.calls);
      this.#unanswered.push(request);
      this.#send(request);
    });
  }

  #send(request: Request): void {
    const server = this.#server;
    if (!server) return;
    const life = this.#life;
    const sentMs = this.computer.trueMs;
    const fault = this.#interfere('request', sentMs);
    const lateMs = fault?.kind === 'late' ? fault.ms : 0;
    const atMs = Math.max(sentMs + this.latencyMs() + lateMs, this.#lastArrivalMs);
    this.#lastArrivalMs = atMs;
    this.#schedule.at(atMs, () =>
      fault?.kind === 'drop' ? this.cut() : this.#arrive(request, server, life, sentMs),
    );
    if (fault?.kind === 'twice') {
      this.#schedule.at(atMs + fault.ms, () => {
        if (server.alive) this.#carryOut(request, server, 'late', sentMs);
      });
    }
    this.#sendStray(this.#random, strays, request, server, { sentMs, atMs });
    const own = this.#leaseStrays;
    if (own) this.#sendStray(own, leaseStrays, request, server, { sentMs, atMs });
  }

  /** @param atMs the arrival of the first copy */
  #sendStray(
    random: Random,
    commands: ReadonlySet<ModelCommand>,
    request: Request,
    server: NodeModel,
    { sentMs, atMs }: Record<'sentMs' | 'atMs', number>,
  ): void {
    const isStray = random.chance(STRAY_CHANCE);
    if (!isStray || !request.calls.some(({ command }) => commands.has(command))) return;
    const strayMs = random.between(0, STRAY_DELAYS * this.weather.delayMaxMs);
    this.#schedule.at(atMs + strayMs, () => {
      if (server.alive) this.#carryOut(request, server, 'late', sentMs);
    });
  }

  #arrive(request: Request, server: NodeModel, life: number, sentMs: number): void {
    if (!server.alive) return;
    if (life !== this.#life) {
      // The connection broke while the request was on its way. The request may be lost, arrive, or
      // arrive late.
      if (this.#random.chance(0.4)) return;
      const lateMs = this.#random.between(0, this.weather.delayMaxMs);
      if (this.#random.chance(0.5)) {
        this.#schedule.at(this.#schedule.nowMs + lateMs, () => {
          if (server.alive) this.#carryOut(request, server, 'late', sentMs);
        });
        return;
      }
    }
    const { answers, journey } = this.#carryOut(request, server, 'in time', sentMs);
    const fault = this.#interfere('reply', this.#schedule.nowMs);
    const lateMs = fault?.kind === 'late' ? fault.ms : 0;
    const atMs = Math.max(this.#schedule.nowMs + this.latencyMs() + lateMs, this.#lastReplyMs);
    if (life === this.#life) this.#lastReplyMs = atMs;
    this.#schedule.at(atMs, () => {
      if (life !== this.#life) return;
      if (fault?.kind === 'drop') return this.cut();
      return this.computer.hand('message', this, () => {
        if (life !== this.#life) return;
        journey.repliedMs = this.computer.trueMs;
        this.#settle(request, answers);
      });
    });
  }

  #carryOut(
    request: Request,
    server: NodeModel,
    how: CarriedOut['how'],
    sentMs: number,
  ): { readonly answers: Reply[] | Error; readonly journey: Journey } {
    const journey: Journey = { sentMs, arrivedMs: this.#schedule.nowMs, repliedMs: null };
    let answers: Reply[] | Error;
    server.onReply = (call, reply) =>
      this.#recorder?.carriedOut(this, request, server, call, reply);
    try {
      answers = server[request.command](request.asked, request);
    } catch (error) {
      answers = error instanceof Error ? error : new Error(String(error));
    }
    for (const [at, call] of request.calls.entries()) {
      const answer = answers instanceof Error ? answers : (answers[at] ?? []);
      this.#observe({ connection: this, server, call, answer, journey, how });
    }
    return { answers, journey };
  }

  #settle(request: Request, answer: Reply[] | Error): void {
    this.#unanswered = this.#unanswered.filter((one) => one !== request);
    if (answer instanceof Error) {
      if (answer.message.startsWith('NOSCRIPT')) {
        this.#recorder?.unknown(this, request, request.calls);
      }
      request.reject(answer);
      return;
    }
    this.#recorder?.answered(answer);
    request.resolve(written(answer));
  }

  #reconnectLater(): void {
    const delayMs = this.#random.between(0.5, this.#random.chance(0.7) ? 5 : 60);
    this.#schedule.at(this.computer.trueMs + delayMs, () =>
      this.computer.hand('message', this, () => this.#reconnect()),
    );
  }

  #reconnect(): void {
    const { ghost, master } = this.machine;
    const server = ghost && this.#random.chance(0.5) ? ghost : master;
    const isBlocked = this.weather.blockedUntilMs > this.#schedule.nowMs;
    const pending = this.#unanswered;
    if (!server || isBlocked) {
      this.#reconnectLater();
      if (this.#random.chance(0.3)) this.#fail(pending);
      return;
    }
    this.#server = server;
    this.#lastArrivalMs = 0;
    this.#lastReplyMs = 0;
    if (this.#resends) for (const request of pending) this.#send(request);
    else this.#fail(pending);
  }

  #fail(requests: readonly Request[]): void {
    this.#unanswered = this.#unanswered.filter((one) => !requests.includes(one));
    for (const { reject } of requests) reject(new Error('Connection is closed.'));
  }
}

/** A subscribed connection. It is broken at times, and loses the messages of that time. */
class Subscriber implements IoredisSubscriber {
  readonly #connection: Connection;
  readonly #schedule: Schedule;
  readonly #random: Random;
  readonly #listeners: ((channel: string, message: string) => void)[] = [];
  readonly #channels = new Set<string>();

  constructor(connection: Connection, schedule: Schedule, random: Random) {
    this.#connection = connection;
    this.#schedule = schedule;
    this.#random = random;
  }

  readonly #hear = (channel: string, message: string): void => {
    if (!this.#channels.has(channel) || this.#random.chance(LOSS_CHANCE)) return;
    this.#later(() => {
      for (const listener of this.#listeners) listener(channel, message);
    });
  };

  async connect(): Promise<void> {}

  async subscribe(channel: string): Promise<void> {
    this.#channels.add(channel);
    this.#connection.machine.listeners.add(this.#hear);
  }

  on(event: 'message', listener: (channel: string, message: string) => void): void;
  on(event: 'ready' | 'close' | 'error', listener: () => void): void;
  on(event: string, listener: (channel: string, message: string) => void): void {
    if (event === 'message') this.#listeners.push(listener);
    if (event === 'ready') this.#later(() => listener('', ''));
  }

  disconnect(): void {
    this.#connection.machine.listeners.delete(this.#hear);
  }

  #later(run: () => void): void {
    const { computer } = this.#connection;
    const atMs = computer.trueMs + this.#connection.latencyMs();
    this.#schedule.at(atMs, () => computer.hand('message', this, run));
  }
}
