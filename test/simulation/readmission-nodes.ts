import { ModelNode } from './readmission-model.ts';
import {
  type Answer,
  type Clock,
  FAST_FLAWS,
  FastNode,
  NAMES,
  type Process,
  type Request,
} from './readmission-node.ts';
import type { NodeFlaw } from './redis-process.ts';

/** A node: its present master, and the old master of a failover, which still answers some. */
export interface Place {
  readonly index: number;
  master: Process;
  old: Process | null;
  starts: number;
  /** The highest generation that has voted and lost its memory. */
  lostGeneration: number;
}

/** The nodes of some worlds. `isModel`: they have all rules of `NodeModel`, which takes longer. */
export interface Kind {
  readonly flaws: ReadonlySet<NodeFlaw>;
  readonly isModel: boolean;
}

/** Five nodes that answer at once. Their clock counts the steps of the world. */
export class FiveNodes implements Clock {
  nowMs = 0;
  /** Number of ADMIT commands that were carried out. */
  admissions = 0;
  /** Number of times that a vote has changed, or a master or an old master. */
  changes = 0;
  readonly places: readonly Place[];
  readonly #kind: Kind;

  /** @param from nodes to copy; null for nodes without memory */
  constructor(from: FiveNodes | null, kind: Kind) {
    this.#kind = kind;
    this.nowMs = from?.nowMs ?? 0;
    this.places = NAMES.map((name, index) => {
      const known = from?.places[index];
      if (known) {
        return { ...known, master: known.master.copy(this), old: known.old?.copy(this) ?? null };
      }
      const master = this.#process(index, `${name}1`);
      return { index, master, old: null, starts: 1, lostGeneration: 0 };
    });
  }

  copy(): FiveNodes {
    return new FiveNodes(this, this.#kind);
  }

  place(index: number): Place {
    const found = this.places[index];
    if (!found) throw new Error(`there is no node ${index}`);
    return found;
  }

  carryOut(process: Process, request: Request): Answer {
    const before = process.voter;
    const answer = process.carryOut(request);
    if (answer.answer === 'admitted') this.admissions += 1;
    if (process.voter !== before) this.changes += 1;
    return answer;
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

  /**
   * Counts the other nodes that know the less known of two incarnations of a node. Both have the
   * same generation, and one of them votes. 0 if there are no such two. They arise if two clients
   * nominate them, and neither knows of the other.
   */
  division({ index, master, old }: Place): number {
    if (!old || (old.voter === null) === (master.voter === null)) return 0;
    const knownOf = ({ known: { incarnation } }: Process): readonly number[] => {
      if (incarnation === '') return [];
      return this.places.flatMap((other) => {
        const entry = other.index === index ? undefined : other.master.known.roster[index];
        return entry?.incarnation === incarnation ? [entry.generation] : [];
      });
    };
    const [ofOld, ofNew] = [knownOf(old), knownOf(master)];
    return ofOld[0] === ofNew[0] ? Math.min(ofOld.length, ofNew.length) : 0;
  }

  #started(place: Place): Process {
    place.starts += 1;
    this.changes += 1;
    return this.#process(place.index, `${NAMES[place.index]}${place.starts}`);
  }

  #process(index: number, history: string): Process {
    const { flaws, isModel } = this.#kind;
    const Node = isModel || [...flaws].some((one) => !FAST_FLAWS.has(one)) ? ModelNode : FastNode;
    return new Node(index, history, this, flaws);
  }

  /** Fewer than a majority may be without memory, or have an old master, at one time. */
  #mayLose(place: Place): boolean {
    const others = this.places.filter(
      (one) =>
        one !== place && (one.old !== null || one.master.known.generation <= one.lostGeneration),
    );
    return others.length + 1 < NAMES.length / 2;
  }

  #forget(place: Place): void {
    const { master, old } = place;
    const here = Math.max(master.known.generation, old?.known.generation ?? 0);
    place.lostGeneration = Math.max(place.lostGeneration, here);
  }
}
