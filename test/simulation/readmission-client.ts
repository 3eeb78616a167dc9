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
import { Command, type Reply } from '../../packages/lock/src/redis/command.ts';
import { inspected, promised, rosterText, vote } from '../../packages/lock/src/redis/replies.ts';
import type { CommandName } from '../../packages/lock/src/redis/scripts.ts';
import { EPOCH_MS } from './computer.ts';
import type { NodeModel } from './node-model.ts';
import type { Random } from './random.ts';
import { type FiveNodes, memberships, NAMES, PREFIX } from './readmission-nodes.ts';

const QUEUE = [`${PREFIX}queue:r`];
const LEASE_MS = '40';
const FENCE_MS = '1000000';
/** Chance that a request of a dead client is lost. Otherwise it still arrives. */
const LOST_CHANCE = 0.9;
const NO_ANSWER = { answer: 'error', error: new Error('no answer') } as const;

/** The part of a world that clients need. */
export interface Mail {
  readonly nodes: FiveNodes;
  readonly random: Random;
  /** Delivers a request at a later step, in any order. */
  post(deliver: () => void): void;
  log(line: () => string): void;
}

type Processes = readonly (NodeModel | null)[];

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

  /** True if, of the first nodes by name, one has no vote or one that does not count. */
  notices(count: number): boolean {
    const { nodes } = this.#mail;
    const asked = this.#processes.flatMap((process, index) =>
      process ? [{ process, index }] : [],
    );
    const voters = asked.slice(0, count).map(({ process, index }) => nodes.voter(process, index));
    const known = voters.filter((one) => one !== null);
    return known.length < voters.length || supersededIn(known).length > 0;
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
      () => new Command('inspect', [], [this.#uniqueId()]),
      (replies) =>
        next(
          replies.map((reply, index) => {
            const service = memberships[index];
            const seen = reply && service ? inspected(reply, service) : null;
            return seen?.answer === 'inspected' ? seen : null;
          }),
        ),
    );
  }

  #nominate(seen: readonly (Inspection | null)[], gathering: Gathering, seed: Seed): void {
    const { nominations, everybody } = gathering;
    const outlived = findOutlived(seen, everybody);
    if (outlived.length > 0) {
      this.#ask(
        (index) => {
          const one = outlived.find((voter) => voter.index === index);
          return one ? new Command('retire', [], [one.incarnation, this.#uniqueId()]) : null;
        },
        () => {},
      );
      return;
    }
    if (nominations.length === 0) return;
    this.#ask(
      (index) => {
        const inspection = seen[index];
        return inspection ? promiseOf(inspection, index, nominations) : null;
      },
      (replies) => this.#decide(seen, gathering, seed, replies),
    );
  }

  #decide(
    seen: readonly (Inspection | null)[],
    gathering: Gathering,
    seed: Seed,
    replies: readonly (Reply | null)[],
  ): void {
    const promises = replies.flatMap((reply, index): Promised[] => {
      const service = memberships[index];
      const answer = reply && service ? promised(reply, service) : null;
      return answer?.answer === 'promised' ? [{ index, ...answer }] : [];
    });
    if (promises.some(({ index, voting }) => voting && !seen[index]?.voting)) return;
    const plan = planReadmission(gathering, promises, NAMES.length, seed);
    if (!plan) return;
    const known = [rosterText(plan.roster), String(plan.floor), plan.longestMs];
    this.#ask(
      (index) => {
        const inspection = seen[index];
        const one = gathering.nominations.find((nomination) => nomination.index === index);
        if (!inspection || !one) return null;
        const { history, incarnation } = inspection;
        // Without a recovery wait: tokens must not depend on it.
        const values = [history, incarnation, one.generation, ...known, LEASE_MS, 0];
        return new Command('admit', [], [...values, ...namesOf(index)]);
      },
      () => {},
    );
  }

  /** Takes the lock once, and releases it. @param onWon called with the token */
  acquire(onWon: (owner: string, token: bigint) => void): void {
    const owner = this.#uniqueId();
    const votes: Vote[] = this.#processes.map((one) => (one ? { answer: 'pending' } : NO_ANSWER));
    let isDecided = false;
    const end = (): void => {
      isDecided = true;
      const release = new Command('release', QUEUE, [owner]);
      for (const index of NAMES.keys()) this.#send(index, release, () => {});
    };
    const take = (index: number, reply: Reply | null): void => {
      const service = memberships[index];
      if (isDecided || !service) return;
      votes[index] = reply ? vote(reply, service) : NO_ANSWER;
      const decision = decide(votes);
      if (decision.state === 'won') onWon(owner, decision.token);
      if (decision.state !== 'open') {
        end();
        return;
      }
      for (const laggard of decision.laggards) {
        votes[laggard] = { answer: 'pending' };
        send(laggard, 'confirm', [owner, String(decision.token), FENCE_MS]);
      }
    };
    const send = (index: number, name: CommandName, values: readonly string[]): void =>
      this.#send(index, new Command(name, QUEUE, values), (reply) => take(index, reply));
    for (const index of NAMES.keys()) send(index, 'acquire', [owner, LEASE_MS, FENCE_MS]);
  }

  /** Asks nodes. Goes on when all have answered, or have not been reached. */
  #ask(
    commandFor: (index: number) => Command | null,
    next: (replies: readonly (Reply | null)[]) => void,
  ): void {
    const replies: (Reply | null)[] = NAMES.map(() => null);
    const commands = NAMES.map((_, index) => (this.#processes[index] ? commandFor(index) : null));
    let left = commands.filter((one) => one !== null).length;
    if (left === 0) {
      next(replies);
      return;
    }
    for (const [index, command] of commands.entries()) {
      if (!command) continue;
      this.#send(index, command, (reply) => {
        replies[index] = reply;
        left -= 1;
        if (left === 0) next(replies);
      });
    }
  }

  #send(index: number, command: Command, onReply: (reply: Reply | null) => void): void {
    const process = this.#processes[index];
    if (!process) return;
    const { nodes, random } = this.#mail;
    this.#mail.post(() => {
      if (this.#isDead && random.chance(LOST_CHANCE)) return;
      const reply = process.alive ? nodes.carryOut(process, index, command) : null;
      this.#mail.log(() => {
        const where = `${NAMES[index]}${process === nodes.place(index).old ? "'s old master" : ''}`;
        const told = reply ? [...reply.parts, ...reply.voters].join(' ') : 'no answer';
        return `${this.name} → ${where}: ${command.name} ${command.values.join(' ')} = ${told}`;
      });
      if (this.#isDead) return;
      if (this.#repliesLeft === 0) {
        this.#isDead = true;
        this.#mail.log(() => `${this.name} dies`);
        return;
      }
      this.#repliesLeft -= 1;
      onReply(reply);
    });
  }

  #uniqueId(): string {
    return `${this.name}-${this.#mail.random
      .below(2 ** 32)
      .toString(16)
      .padStart(8, '0')}`;
  }
}

/** As `RedisNode.promise`. */
function promiseOf(seen: Inspection, index: number, nominations: readonly Nomination[]): Command {
  const nominated = nominations.flatMap((one) => [
    one.index + 1,
    one.incarnation,
    one.generation,
    seen.roster[one.index]?.generation ?? 0,
  ]);
  const values = [seen.incarnation, ...namesOf(index), NAMES.length, ...nominated];
  return new Command('promise', [], values);
}

const ALL_NAMES = JSON.stringify(NAMES);

function namesOf(index: number): readonly [string, string] {
  return [NAMES[index] ?? '', ALL_NAMES];
}
