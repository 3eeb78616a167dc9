import type { VoteReply } from '../../packages/lock/src/core/answers.ts';
import { supersededIn } from '../../packages/lock/src/core/quorum.ts';
import {
  findOutlived,
  type Gathering,
  type Inspection,
  isSeenAgain,
  type Nomination,
  type Promised,
  planGathering,
  planReadmission,
  type Seed,
} from '../../packages/lock/src/core/readmission.ts';
import { decide, type Vote } from '../../packages/lock/src/core/tally.ts';
import { EPOCH_MS } from './computer.ts';
import type { Random } from './random.ts';
import { type Answer, idText, NAMES, type Process, type Request } from './readmission-node.ts';
import type { FiveNodes } from './readmission-nodes.ts';

/** Chance that a request of a dead client is lost. Otherwise it still arrives. */
const LOST_CHANCE = 0.9;
const NO_ANSWER = { answer: 'error', error: new Error('no answer') } as const;

/** The part of a world that clients need. */
export interface Mail {
  readonly nodes: FiveNodes;
  readonly random: Random;
  /** Delivers a request at a later step, in any order. */
  post(deliver: () => void): void;
  /** Null if nobody reads the lines. */
  readonly log: ((line: string) => void) | null;
}

type Processes = readonly (Process | null)[];

/**
 * A client that may die. It decides by the functions of the real client, in the same order as
 * `ReadmissionRound` and `acquire`. A node's reply reaches it at once, because a late reply has
 * the same effect as a late decision.
 */
export class ShortClient {
  readonly name: string;
  readonly #mail: Mail;
  /** The process of each node that it reaches, for its life; null for a node that it does not. */
  readonly #processes: Processes;
  /** The number of replies after which it dies. */
  #repliesLeft: number;
  #isDead = false;

  constructor(name: string, mail: Mail, processes: Processes, repliesMax: number) {
    this.name = name;
    this.#mail = mail;
    this.#processes = processes;
    this.#repliesLeft = repliesMax;
  }

  /** True if a node that it reaches has no vote, or one that does not count. */
  notices(): boolean {
    const asked = this.#processes.filter((process) => process !== null);
    const voters = asked.map(({ voter }) => voter).filter((voter) => voter !== null);
    return voters.length < asked.length || supersededIn(voters).length > 0;
  }

  /** One round of readmission. */
  readmit(): void {
    this.#inspect((seen) => {
      const seed = { wallClockMs: EPOCH_MS + this.#mail.nodes.nowMs, firstToken: null };
      const gathering = planGathering(seen, seed);
      if (!gathering) return;
      if (gathering.everybody === null) this.#nominate(seen, gathering, seed);
      else {
        this.#inspect((again) => {
          if (isSeenAgain(seen, again)) this.#nominate(seen, gathering, seed);
        });
      }
    });
  }

  #inspect(next: (seen: readonly (Inspection | null)[]) => void): void {
    this.#ask(
      () => ({ name: 'inspect', random: this.#random() }),
      (answers) => next(answers.map((one) => (one?.answer === 'inspected' ? one : null))),
    );
  }

  #nominate(seen: readonly (Inspection | null)[], gathering: Gathering, seed: Seed): void {
    const { nominations, everybody } = gathering;
    const outlived = findOutlived(seen, everybody);
    if (outlived.length > 0) {
      this.#ask(
        (index) => {
          const one = outlived.find((voter) => voter.index === index);
          if (!one) return null;
          return { name: 'retire', incarnation: one.incarnation, random: this.#random() };
        },
        () => {},
      );
      return;
    }
    if (nominations.length === 0) return;
    this.#ask(
      (index) => {
        const inspection = seen[index];
        return inspection ? promiseOf(inspection, nominations) : null;
      },
      (answers) => this.#decide(seen, gathering, seed, answers),
    );
  }

  #decide(
    seen: readonly (Inspection | null)[],
    gathering: Gathering,
    seed: Seed,
    answers: readonly (Answer | null)[],
  ): void {
    const promises = answers.flatMap((one, index): Promised[] =>
      one?.answer === 'promised' ? [{ ...one, index }] : [],
    );
    if (promises.some(({ index, voting }) => voting && !seen[index]?.voting)) return;
    const plan = planReadmission(gathering, promises, NAMES.length, seed);
    if (!plan) return;
    this.#ask(
      (index) => {
        const inspection = seen[index];
        const one = gathering.nominations.find((nomination) => nomination.index === index);
        if (!inspection || !one) return null;
        const { history, incarnation } = inspection;
        return { name: 'admit', history, incarnation, generation: one.generation, plan };
      },
      () => {},
    );
  }

  /** Takes the lock once, and releases it. @param onWon called with the token */
  acquire(onWon: (owner: string, token: bigint) => void): void {
    const owner = `${this.name}-${idText(this.#random())}`;
    const votes: Vote[] = this.#processes.map((one) => (one ? { answer: 'pending' } : NO_ANSWER));
    let isDecided = false;
    const end = (): void => {
      isDecided = true;
      for (const index of NAMES.keys()) this.#send(index, { name: 'release', owner }, () => {});
    };
    const take = (index: number, answer: Answer | null): void => {
      if (isDecided) return;
      // ACQUIRE and CONFIRM have no other answers.
      votes[index] = (answer as VoteReply | null) ?? NO_ANSWER;
      const decision = decide(votes);
      if (decision.state === 'won') onWon(owner, decision.token);
      if (decision.state !== 'open') {
        end();
        return;
      }
      for (const laggard of decision.laggards) {
        votes[laggard] = { answer: 'pending' };
        send(laggard, { name: 'confirm', owner, token: decision.token });
      }
    };
    const send = (index: number, request: Request): void =>
      this.#send(index, request, (answer) => take(index, answer));
    for (const index of NAMES.keys()) send(index, { name: 'acquire', owner });
  }

  /** Asks nodes. Goes on when all have answered, or have not been reached. */
  #ask(
    requestFor: (index: number) => Request | null,
    next: (answers: readonly (Answer | null)[]) => void,
  ): void {
    const answers: (Answer | null)[] = NAMES.map(() => null);
    let left = 0;
    for (const [index, process] of this.#processes.entries()) {
      const request = process && requestFor(index);
      if (!request) continue;
      left += 1;
      this.#send(index, request, (answer) => {
        answers[index] = answer;
        left -= 1;
        if (left === 0) next(answers);
      });
    }
    if (left === 0) next(answers);
  }

  #send(index: number, request: Request, onAnswer: (answer: Answer | null) => void): void {
    const process = this.#processes[index];
    if (!process) return;
    const { nodes, random } = this.#mail;
    this.#mail.post(() => {
      if (this.#isDead && random.chance(LOST_CHANCE)) return;
      const answer = process.alive ? nodes.carryOut(process, request) : null;
      this.#mail.log?.(`${this.#addressed(process, index)}: ${told(request, answer)}`);
      if (this.#isDead) return;
      if (this.#repliesLeft === 0) {
        this.#isDead = true;
        this.#mail.log?.(`${this.name} dies`);
        return;
      }
      this.#repliesLeft -= 1;
      onAnswer(answer);
    });
  }

  #addressed(process: Process, index: number): string {
    const isOld = process === this.#mail.nodes.place(index).old;
    return `${this.name} → ${NAMES[index]}${isOld ? "'s old master" : ''}`;
  }

  #random(): number {
    return this.#mail.random.below(2 ** 32);
  }
}

/** As `RedisNode.promise`. */
function promiseOf(seen: Inspection, nominations: readonly Nomination[]): Request {
  const nominated = nominations.map(({ index, incarnation, generation }) => {
    const seenGeneration = seen.roster[index]?.generation ?? 0;
    return { index, incarnation, generation, seenGeneration };
  });
  return { name: 'promise', incarnation: seen.incarnation, nominations: nominated };
}

function told({ name, ...values }: Request, answer: Answer | null): string {
  const shown = (facts: object): string =>
    JSON.stringify(facts, (_, one) => (typeof one === 'bigint' ? String(one) : one));
  if (!answer) return `${name} ${shown(values)} = no answer`;
  const { answer: kind, ...facts } = answer;
  return `${name} ${shown(values)} = ${kind} ${shown(facts)}`;
}
