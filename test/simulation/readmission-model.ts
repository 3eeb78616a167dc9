import { createHash } from 'node:crypto';
import { STORAGE_VERSION } from '../../packages/lock/src/core/mismatch.ts';
import type { Voter } from '../../packages/lock/src/core/quorum.ts';
import { Command, type Reply } from '../../packages/lock/src/redis/command.ts';
import { nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import * as replies from '../../packages/lock/src/redis/replies.ts';
import { scriptFor } from '../../packages/lock/src/redis/scripts.ts';
import { EPOCH_MS } from './computer.ts';
import { NodeModel, VOTES } from './node-model.ts';
import {
  type Answer,
  type Clock,
  idText,
  LEASE_MS,
  NAMES,
  type Process,
  type Request,
} from './readmission-node.ts';
import { NodeData, type NodeFlaw } from './redis-process.ts';

const PREFIX = '{fenced}:';
const KEYS = nodeKeys(PREFIX);
const [NODE_KEY] = KEYS;
const QUEUE = [`${PREFIX}queue:r`];
const FENCE_MS = 1_000_000;
const ALL_NAMES = JSON.stringify(NAMES);

const memberships: readonly replies.Membership[] = NAMES.map((name) => {
  const digest = createHash('sha1')
    .update(JSON.stringify([NAMES, name]))
    .digest('hex');
  return { members: `${STORAGE_VERSION} ${digest}`, names: NAMES };
});

/** A node with all rules of `NodeModel`, which gets commands and answers in texts. */
export class ModelNode implements Process {
  readonly history: string;
  alive = true;
  readonly #index: number;
  readonly #flaws: ReadonlySet<NodeFlaw>;
  readonly #service: replies.Membership;
  readonly #model: NodeModel;

  constructor(
    index: number,
    history: string,
    clock: Clock,
    flaws: ReadonlySet<NodeFlaw>,
    data: NodeData = new NodeData(),
  ) {
    const service = memberships[index];
    if (!service) throw new Error(`there is no node ${index}`);
    this.#index = index;
    this.history = history;
    this.#flaws = flaws;
    this.#service = service;
    this.#model = new NodeModel(history, data, () => EPOCH_MS + clock.nowMs, flaws);
  }

  get voter(): Voter | null {
    const text = this.#field('vote');
    if (text === '' || this.#field('history') !== this.history) return null;
    const granted: Reply = { parts: ['granted', '0', 1], voters: [text], mayBeLate: false };
    const seen = replies.vote(granted, this.#service);
    return seen.answer === 'granted' ? { ...seen, index: this.#index } : null;
  }

  get known(): Process['known'] {
    const roster = this.#field('roster').split(',');
    return {
      generation: Number(this.#field('generation')),
      incarnation: this.#field('incarnation'),
      roster: roster.map((entry) => {
        const [generation, incarnation = ''] = entry.split(':');
        return { generation: Number(generation), incarnation };
      }),
    };
  }

  copy(clock: Clock): ModelNode {
    const data = this.#model.data.clone();
    return new ModelNode(this.#index, this.history, clock, this.#flaws, data);
  }

  carryOut(request: Request): Answer {
    const { name, keys, values } = this.#commandOf(request);
    const script = scriptFor([{ command: { name } }]);
    const calls = [{ command: name, keys, values }];
    const { members } = this.#service;
    const facts = { nodeKeys: KEYS, members, calls, script };
    const [reply = []] = this.#model.eval(script.source, facts);
    // A vote in the reply has the form in which clients read it.
    const own = VOTES[String(reply[0])] ?? reply.length;
    const isVote = reply.length > own;
    const parts = isVote ? reply.with(own, 1) : reply;
    const read = { parts, voters: isVote ? [String(reply[own])] : [], mayBeLate: false };
    return READERS[request.name](read, this.#service);
  }

  #commandOf(request: Request): Command {
    const { name } = request;
    const ownNames = [NAMES[this.#index] ?? '', ALL_NAMES];
    switch (name) {
      case 'inspect':
        return new Command(name, [], [idText(request.random)]);
      case 'retire':
        return new Command(name, [], [request.incarnation, idText(request.random)]);
      case 'promise': {
        const nominated = request.nominations.flatMap(
          ({ index, incarnation, generation, seenGeneration }) => [
            index + 1,
            ...[incarnation, generation, seenGeneration],
          ],
        );
        const values = [request.incarnation, ...ownNames, NAMES.length, ...nominated];
        return new Command(name, [], values);
      }
      case 'admit': {
        const { history, incarnation, generation, plan } = request;
        const known = [replies.rosterText(plan.roster), String(plan.floor), plan.longestMs];
        // Without a recovery wait: tokens must not depend on it.
        const values = [history, incarnation, generation, ...known, LEASE_MS, 0, ...ownNames];
        return new Command(name, [], values);
      }
      case 'acquire':
        return new Command(name, QUEUE, [request.owner, LEASE_MS, FENCE_MS]);
      case 'confirm':
        return new Command(name, QUEUE, [request.owner, String(request.token), FENCE_MS]);
      case 'release':
        return new Command(name, QUEUE, [request.owner]);
    }
  }

  #field(name: string): string {
    return this.#model.field(NODE_KEY, name) ?? '';
  }
}

type Reader = (reply: Reply, service: replies.Membership) => Answer;

const READERS: Readonly<Record<Request['name'], Reader>> = {
  inspect: replies.inspected,
  retire: replies.retired,
  promise: replies.promised,
  admit: replies.admitted,
  acquire: replies.vote,
  confirm: replies.vote,
  release: replies.released,
};
