import { createHash } from 'node:crypto';
import { STORAGE_VERSION } from '../../packages/lock/src/core/mismatch.ts';
import type { Voter } from '../../packages/lock/src/core/quorum.ts';
import type { Command, Reply } from '../../packages/lock/src/redis/command.ts';
import { nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { type Membership, vote } from '../../packages/lock/src/redis/replies.ts';
import { scriptFor } from '../../packages/lock/src/redis/scripts.ts';
import { EPOCH_MS } from './computer.ts';
import { NodeModel, VOTES } from './node-model.ts';
import { NodeData, type NodeFlaw } from './redis-process.ts';

export const NAMES: readonly string[] = ['a', 'b', 'c', 'd', 'e'];
export const PREFIX = '{fenced}:';
const KEYS = nodeKeys(PREFIX);
const [NODE_KEY] = KEYS;

export const memberships: readonly Membership[] = NAMES.map((name) => {
  const digest = createHash('sha1')
    .update(JSON.stringify([NAMES, name]))
    .digest('hex');
  return { members: `${STORAGE_VERSION} ${digest}`, names: NAMES };
});

/** A node: its present master, and the old master of a failover, which still answers some. */
export interface Place {
  readonly index: number;
  master: NodeModel;
  old: NodeModel | null;
  starts: number;
  /** The highest generation that has voted and lost its memory. */
  lostGeneration: number;
}

/** Five nodes that answer at once. Their clock counts the steps of the world. */
export class FiveNodes {
  nowMs = 0;
  /** Number of ADMIT commands that were carried out. */
  admissions = 0;
  readonly places: readonly Place[];
  readonly #flaws: ReadonlySet<NodeFlaw>;

  /** @param from nodes to copy; null for nodes without memory */
  constructor(from: FiveNodes | null, flaws: ReadonlySet<NodeFlaw>) {
    this.#flaws = flaws;
    this.nowMs = from?.nowMs ?? 0;
    this.places = NAMES.map((name, index) => {
      const known = from?.places[index];
      if (!known) {
        const master = this.#process(`${name}1`, new NodeData());
        return { index, master, old: null, starts: 1, lostGeneration: 0 };
      }
      const copy = ({ history, data }: NodeModel): NodeModel =>
        this.#process(history, data.clone());
      return { ...known, master: copy(known.master), old: known.old && copy(known.old) };
    });
  }

  place(index: number): Place {
    const found = this.places[index];
    if (!found) throw new Error(`there is no node ${index}`);
    return found;
  }

  /** Carries out a command. A vote in the reply has the form in which clients read it. */
  carryOut(process: NodeModel, index: number, { name, keys, values }: Command): Reply {
    const script = scriptFor([{ command: { name } }]);
    const { members = '' } = memberships[index] ?? {};
    const calls = [{ command: name, keys, values }];
    const [reply = []] = process.eval(script.source, { nodeKeys: KEYS, members, calls, script });
    if (reply[0] === 'admitted') this.admissions += 1;
    const own = VOTES[String(reply[0])] ?? reply.length;
    if (reply.length <= own) return { parts: reply, voters: [], mayBeLate: false };
    return { parts: reply.with(own, 1), voters: [String(reply[own])], mayBeLate: false };
  }

  /** The node restarts without its memory. @returns false if too many nodes would lack a vote */
  restart(place: Place): boolean {
    if (!this.#mayLose(place)) return false;
    this.#forget(place);
    place.master.alive = false;
    place.master = this.#started(place);
    return true;
  }

  /** A replica without data becomes master. The old master still answers some clients. */
  failOver(place: Place): boolean {
    if (!this.#mayLose(place)) return false;
    this.#forget(place);
    if (place.old) place.old.alive = false;
    place.old = place.master;
    place.master = this.#started(place);
    return true;
  }

  votes(process: NodeModel): boolean {
    return process.field(NODE_KEY, 'history') === process.history;
  }

  /** The incarnation that votes in this process, with its roster; null if it does not vote. */
  voter(process: NodeModel, index: number): Voter | null {
    const service = memberships[index];
    const text = process.field(NODE_KEY, 'vote');
    if (!service || text === undefined || !this.votes(process)) return null;
    const seen = vote({ parts: ['granted', '0', 1], voters: [text], mayBeLate: false }, service);
    return seen.answer === 'granted' ? { ...seen, index } : null;
  }

  /**
   * Counts the other nodes that know the less known of two incarnations of a node. Both have the
   * same generation, and one of them votes. 0 if there are no such two. They arise if two clients
   * nominate them, and neither knows of the other.
   */
  division({ index, master, old }: Place): number {
    if (!old || this.votes(old) === this.votes(master)) return 0;
    const knownOf = (process: NodeModel): readonly string[] => {
      const name = process.field(NODE_KEY, 'incarnation') ?? '-';
      return this.places.flatMap((other) => {
        if (other.index === index) return [];
        const entry = (other.master.field(NODE_KEY, 'roster') ?? '').split(',')[index];
        return entry?.endsWith(`:${name}`) ? [entry.slice(0, -name.length)] : [];
      });
    };
    const [ofOld, ofNew] = [knownOf(old), knownOf(master)];
    return ofOld[0] === ofNew[0] ? Math.min(ofOld.length, ofNew.length) : 0;
  }

  #started(place: Place): NodeModel {
    place.starts += 1;
    return this.#process(`${NAMES[place.index]}${place.starts}`, new NodeData());
  }

  #process(history: string, data: NodeData): NodeModel {
    return new NodeModel(history, data, () => EPOCH_MS + this.nowMs, this.#flaws);
  }

  /** Fewer than a majority may be without memory, or have an old master, at one time. */
  #mayLose(place: Place): boolean {
    const others = this.places.filter(
      (one) => one !== place && (one.old !== null || generation(one.master) <= one.lostGeneration),
    );
    return others.length + 1 < NAMES.length / 2;
  }

  #forget(place: Place): void {
    const { master, old } = place;
    const here = Math.max(generation(master), old ? generation(old) : 0);
    place.lostGeneration = Math.max(place.lostGeneration, here);
  }
}

function generation(process: NodeModel): number {
  return Number(process.field(NODE_KEY, 'generation') ?? 0);
}
