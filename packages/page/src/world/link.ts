import type { Computer } from '../../../../test/simulation/computer.ts';
import type { Interfere, MessageFault } from '../../../../test/simulation/connection.ts';
import type { Random } from '../../../../test/simulation/random.ts';
import type { Schedule } from '../../../../test/simulation/schedule.ts';
import type { Message, Place } from './run.ts';

const LATENCY_MS = { min: 1, max: 4 };

/** The storage's reply was lost, and the connection is broken. */
export class ReplyLostError extends Error {}

export interface Reply<Value> {
  readonly value: Value;
  readonly label: string;
  readonly tone: Message['tone'];
}

/** The network between one client and the storage. It holds requests, or loses replies. */
export class Link {
  /** True while requests wait in the network. */
  isHeld = false;
  /** True while replies are lost. */
  isLossy = false;
  readonly #client: Place;
  readonly #computer: Computer;
  readonly #schedule: Schedule;
  readonly #random: Random;
  readonly #sent: (message: Message) => void;
  readonly #interfere: Interfere;
  #held: (() => void)[] = [];
  #lost: ((error: Error) => void)[] = [];

  constructor(
    client: Place,
    computer: Computer,
    parts: {
      schedule: Schedule;
      random: Random;
      sent: (message: Message) => void;
      interfere: Interfere;
    },
  ) {
    this.#client = client;
    this.#computer = computer;
    this.#schedule = parts.schedule;
    this.#random = parts.random;
    this.#sent = parts.sent;
    this.#interfere = parts.interfere;
  }

  get holdsRequests(): boolean {
    return this.#held.length > 0;
  }

  get hasLostReplies(): boolean {
    return this.#lost.length > 0;
  }

  /** Delivers the requests that wait. */
  release(): void {
    this.isHeld = false;
    for (const deliver of this.#held.splice(0)) this.#later(deliver);
  }

  /** Breaks the connection: requests whose replies are lost fail. */
  cut(): void {
    this.isLossy = false;
    const error = new ReplyLostError('the reply was lost');
    for (const reject of this.#lost.splice(0)) this.#later(() => this.#hand(() => reject(error)));
  }

  /** @param answer runs when the request arrives */
  request<Value>(label: string, answer: () => Reply<Value>): Promise<Value> {
    const { promise, resolve, reject } = Promise.withResolvers<Value>();
    const [client, sentMs] = [this.#client, this.#computer.trueMs];
    const request: Message = {
      from: client,
      to: 'storage',
      sentMs,
      arrivedMs: null,
      label,
      tone: 'plain',
    };
    this.#sent(request);
    const fault = this.#interfere('request', sentMs);
    const fail = (): void | Promise<void> =>
      this.#hand(() => reject(new ReplyLostError('the connection broke')));
    const arrive = (): void => {
      request.arrivedMs = this.#schedule.nowMs;
      this.#reply(answer(), { resolve, reject, fail });
    };
    const held = (): void => (this.isHeld ? void this.#held.push(arrive) : arrive());
    this.#later(fault?.kind === 'drop' ? fail : held, fault?.kind === 'late' ? fault : null);
    if (fault?.kind === 'twice') {
      // A proxy sends the request once more. Nobody reads the reply.
      this.#later(() => {
        const { nowMs } = this.#schedule;
        this.#sent({ ...request, arrivedMs: nowMs, label: `${label} again` });
        const { label: comparison, tone } = answer();
        const copy = { from: 'storage', to: client, sentMs: nowMs, arrivedMs: null };
        this.#sent({ ...copy, label: comparison, tone });
      }, fault);
    }
    return promise;
  }

  #reply<Value>(
    { value, label, tone }: Reply<Value>,
    ends: {
      readonly resolve: (value: Value) => void;
      readonly reject: (error: Error) => void;
      readonly fail: () => void | Promise<void>;
    },
  ): void {
    const { nowMs } = this.#schedule;
    const reply: Message = {
      from: 'storage',
      to: this.#client,
      sentMs: nowMs,
      arrivedMs: null,
      label,
      tone,
    };
    this.#sent(reply);
    if (this.isLossy) {
      this.#lost.push(ends.reject);
      return;
    }
    const fault = this.#interfere('reply', nowMs);
    const arrive = (): void | Promise<void> =>
      this.#hand(() => {
        reply.arrivedMs = this.#computer.trueMs;
        ends.resolve(value);
      });
    this.#later(fault?.kind === 'drop' ? ends.fail : arrive, fault?.kind === 'late' ? fault : null);
  }

  /** @param fault adds its time */
  #later(run: () => void | Promise<void>, fault: MessageFault | null = null): void {
    const latencyMs = this.#random.between(LATENCY_MS.min, LATENCY_MS.max);
    const lateMs = fault?.ms ?? 0;
    this.#schedule.at(this.#schedule.nowMs + latencyMs + lateMs, run);
  }

  #hand(run: () => void): void | Promise<void> {
    return this.#computer.hand('message', this, run);
  }
}
