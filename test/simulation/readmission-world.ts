import { consistentQuorum, majorityOf, type Voter } from '../../packages/lock/src/core/quorum.ts';
import { History } from './history.ts';
import { Random } from './random.ts';
import { type Mail, ShortClient } from './readmission-client.ts';
import { NAMES, type Process } from './readmission-node.ts';
import { FiveNodes, type Kind, type Place } from './readmission-nodes.ts';
import type { NodeFlaw } from './redis-process.ts';

/** Number of worlds that begin in the same state. To find such a state takes many tries. */
const WORLDS_PER_BEGINNING = 200;
/** Number of tries from the same less divided nodes. From some of them, none succeeds. */
const TRIES_EACH = 30;
/** The division of the nodes at the beginning of a world: two of them know each incarnation. */
const DIVISION = 2;
const TRIES_MAX = 10_000;
/** Number of losses or clients before a world begins, and in a world. */
const BEGINNING_ACTIONS = 5;
const ACTIONS = 16;
/** A client that dies has read fewer replies than this. */
const REPLIES_MAX = 9;
/** Number of acquisitions by two quorums that share no process. */
const CONTESTS = 6;
/** By node: every two bare majorities that share only this node. */
const DIVISIONS = NAMES.map((_, own) =>
  Array.from({ length: 2 ** NAMES.length }, (_, bits) =>
    [...NAMES.keys()].filter((index) => (bits >> index) & 1),
  )
    .filter((one) => one.length === majorityOf(NAMES.length) && one.includes(own))
    .map((one) => {
      const other = [...NAMES.keys()].filter((index) => index === own || !one.includes(index));
      return [one, other] as const;
    }),
);

const NO_FLAWS: ReadonlySet<NodeFlaw> = new Set();

interface Options extends Partial<Kind> {
  readonly trace?: (line: string) => void;
}

/** The outcome of a world. */
interface Life {
  readonly seed: number;
  readonly violation: string | null;
  readonly steps: number;
  readonly acquisitions: number;
  readonly readmissions: number;
}

/** The nodes that some clients reach. `old`: they reach old masters. */
interface View {
  readonly nodes: readonly number[];
  readonly old: boolean;
}

/**
 * Runs a world of five nodes, in which clients reach different nodes, die, and readmit from
 * different majorities. One node fails over and restarts, and the others restart.
 *
 * The real client's functions decide, but there are no timers, connections or promises. A world
 * begins where the nodes are divided over two incarnations of one node under the same generation.
 * That is rare, and dangerous.
 */
export function simulateReadmissions(seed: number, options: Options): Life {
  const { flaws = NO_FLAWS, isModel = false, trace = null } = options;
  if (beginnings?.kind.flaws !== flaws || beginnings.kind.isModel !== isModel) {
    beginnings = new Beginnings({ flaws, isModel });
  }
  const { nodes, troubled } = beginnings.find(Math.floor(seed / WORLDS_PER_BEGINNING), DIVISION);
  const play = new Play(nodes.copy(), new Random(seed, 'readmissions'), trace);
  play.run(troubled, ACTIONS, () => play.violation !== null);
  return {
    seed,
    violation: play.violation,
    steps: play.steps,
    acquisitions: play.acquisitions,
    readmissions: play.readmissions,
  };
}

let beginnings: Beginnings | null = null;

interface Beginning {
  readonly number: number;
  readonly nodes: FiveNodes;
  /** Index of the node that fails over. */
  readonly troubled: number;
}

/** The states in which worlds of a kind begin. */
class Beginnings {
  readonly kind: Kind;
  /** Nodes that one client has set up. */
  readonly #started: FiveNodes;
  /** The last beginning of each division, from 1. */
  readonly #last: (Beginning | undefined)[] = [];

  constructor(kind: Kind) {
    this.kind = kind;
    const play = new Play(new FiveNodes(null, kind), new Random(0, 'first start'), null);
    play.start();
    this.#started = play.nodes;
  }

  /**
   * Finds nodes that are divided over two incarnations of one node; see `FiveNodes.division`. Plays
   * from less divided nodes on, with other random numbers each time, until they are so divided.
   */
  find(number: number, division: number): Beginning {
    const known = this.#last[division];
    if (known?.number === number) return known;
    for (let at = 0; at < TRIES_MAX; at += 1) {
      const random = new Random(number, `division ${division} ${at}`);
      const { nodes, troubled } =
        division > 1
          ? this.find(number * TRIES_MAX + Math.floor(at / TRIES_EACH), division - 1)
          : { nodes: this.#started, troubled: random.below(NAMES.length) };
      const play = new Play(nodes.copy(), random, null);
      const place = play.nodes.place(troubled);
      const isDivided = (): boolean => play.isIdle && play.nodes.division(place) >= division;
      play.run(troubled, BEGINNING_ACTIONS, isDivided, division === 1);
      if (!isDivided()) continue;
      const found = { number, nodes: play.nodes, troubled };
      this.#last[division] = found;
      return found;
    }
    throw new Error(`no clients divide the nodes by ${division}`);
  }
}

class Play implements Mail {
  readonly nodes: FiveNodes;
  readonly random: Random;
  steps = 0;
  acquisitions = 0;
  violation: string | null = null;
  readonly #history = new History(false);
  readonly log: ((line: string) => void) | null;
  #pending: (() => void)[] = [];
  #clients = 0;
  /** `FiveNodes.changes` when no two quorums were found that share no process. */
  #uncontested = -1;

  constructor(nodes: FiveNodes, random: Random, trace: ((line: string) => void) | null) {
    this.nodes = nodes;
    this.random = random;
    this.log = trace && ((line) => trace(`${String(nodes.nowMs).padStart(6)} ${line}`));
  }

  get isIdle(): boolean {
    return this.#pending.length === 0;
  }

  get readmissions(): number {
    return this.nodes.admissions;
  }

  post(deliver: () => void): void {
    this.#pending.push(deliver);
  }

  /** Lets a client that reaches all nodes set them up. */
  start(): void {
    this.#client({ nodes: [...NAMES.keys()], old: false }, Number.POSITIVE_INFINITY).readmit();
    while (!this.isIdle) this.#deliver(0);
  }

  /**
   * Lets nodes lose their memory, and clients readmit them.
   *
   * @param isBeginning true if only the troubled node loses its memory
   */
  run(troubled: number, actions: number, isOver: () => boolean, isBeginning = false): void {
    const { random, nodes } = this;
    const place = nodes.place(troubled);
    const others = nodes.places.filter((one) => one !== place);
    const views = this.#views(troubled);
    const overlap = random.pick([0.02, 0.05, 0.2]);
    const lossChance = random.pick([0.5, 0.7]);
    for (let left = actions; !isOver(); ) {
      if (!this.isIdle && (left === 0 || !random.chance(overlap))) {
        this.#deliver(random.below(this.#pending.length));
        this.#contest(place);
        continue;
      }
      if (left === 0) return;
      left -= 1;
      if (random.chance(lossChance)) {
        if (isBeginning) this.#lose(place, random.chance(0.5));
        else this.#lose(random.pick(others), false);
      }
      const isMortal = random.chance(0.1);
      const replies = isMortal ? random.below(REPLIES_MAX) : Number.POSITIVE_INFINITY;
      const client = this.#client(random.pick(views), replies);
      // A client readmits nodes if it needs them: a new client asks all nodes, and then the first.
      if (client.notices()) client.readmit();
      else if (random.chance(0.2)) this.#acquire(client);
    }
  }

  /**
   * Draws what clients reach: not the troubled node, or its old master, or its new one. Those that
   * reach it do not reach one of the others.
   */
  #views(troubled: number): readonly View[] {
    const others = [...NAMES.keys()].filter((index) => index !== troubled);
    const without = (index: number): readonly number[] =>
      [...NAMES.keys()].filter((one) => one !== index);
    return [
      { nodes: others, old: false },
      { nodes: without(this.random.pick(others)), old: true },
      { nodes: without(this.random.pick(others)), old: false },
    ];
  }

  #client({ nodes, old }: View, repliesMax: number): ShortClient {
    this.#clients += 1;
    const processes = this.nodes.places.map((place) => {
      if (!nodes.includes(place.index)) return null;
      return old && place.old ? place.old : place.master;
    });
    return new ShortClient(`c${this.#clients}`, this, processes, repliesMax);
  }

  #lose(place: Place, isFailover: boolean): void {
    const isDone = isFailover ? this.nodes.failOver(place) : this.nodes.restart(place);
    if (!isDone) return;
    this.log?.(`${isFailover ? 'failover' : 'restart'} of ${NAMES[place.index]}`);
  }

  #deliver(at: number): void {
    const deliver = this.#pending[at];
    const end = this.#pending.pop();
    if (end && at < this.#pending.length) this.#pending[at] = end;
    this.steps += 1;
    this.nodes.nowMs += 1;
    deliver?.();
  }

  #acquire(client: ShortClient): void {
    const beganMs = this.nodes.nowMs;
    client.acquire((owner, token) => {
      const { name } = client;
      this.log?.(`${name} has ${token}`);
      this.acquisitions += 1;
      // No lease is judged here, so the times are counts of steps.
      const returnedMs = this.nodes.nowMs;
      const times = { beganMs, returnedMs, endsMs: returnedMs };
      this.violation ??= this.#history.add({
        client: name,
        owner,
        resources: ['r'],
        token,
        ...times,
      });
    });
  }

  /**
   * If two consistent quorums share no process, clients of both acquire in turn. Other quorums need
   * no such test: the process that they share lets no token repeat.
   */
  #contest(place: Place): void {
    const { old, master } = place;
    if (!old?.voter || !master.voter || this.nodes.changes === this.#uncontested) return;
    const agree = (majority: readonly number[], process: Process): boolean => {
      const voters: Voter[] = [];
      for (const index of majority) {
        const { voter } = index === place.index ? process : this.nodes.place(index).master;
        if (!voter) return false;
        voters.push(voter);
      }
      return consistentQuorum(voters, majority.length) !== null;
    };
    for (const [one, other] of DIVISIONS[place.index] ?? []) {
      if (!agree(one, old) || !agree(other, master)) continue;
      const underWay = this.#pending;
      this.#pending = [];
      for (let at = 0; at < CONTESTS; at += 1) {
        const isOld = this.random.chance(0.5);
        const view = { nodes: isOld ? one : other, old: isOld };
        this.#acquire(this.#client(view, Number.POSITIVE_INFINITY));
        while (!this.isIdle) this.#deliver(0);
      }
      this.#pending = underWay;
      return;
    }
    this.#uncontested = this.nodes.changes;
  }
}
