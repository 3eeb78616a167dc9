import { nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import { EPOCH_MS } from './computer.ts';
import { forget, free, recordOf } from './node-lock-table.ts';
import { NodeModel } from './node-model.ts';
import type { Random } from './random.ts';
import { NodeData, type NodeFlaw } from './redis-process.ts';
import type { Schedule } from './schedule.ts';

const KEY_PREFIX = '{fenced}:';
const SNAPSHOTS_MAX = 4;

/** The data with which a node starts again. */
export type Memory = 'nothing' | 'snapshot' | 'all';

/**
 * One named node: its present master, its snapshots, and the old master of a failover, which still
 * answers some clients.
 */
export class Machine {
  readonly name: string;
  /** Null while it is down. */
  master: NodeModel | null;
  ghost: NodeModel | null = null;
  clockOffsetMs = 0;
  /** Subscribed connections. They get the messages of all processes of the node. */
  readonly listeners = new Set<(channel: string, message: string) => void>();
  /** Called when its data have been saved, lost or partly forgotten. */
  onMemory: ((what: 'save' | 'restart' | 'forget') => void) | null = null;
  readonly #schedule: Schedule;
  readonly #random: Random;
  readonly #flaws: ReadonlySet<NodeFlaw>;
  readonly #snapshots: NodeData[] = [];
  /** The data that the next process finds. */
  #disk = new NodeData();
  #starts = 0;
  /** By key prefix, the highest generation that has voted and lost its memory. */
  readonly #lostGenerations = new Map<string, number>();
  readonly #prefixes: readonly string[];

  /** @param prefixes the key prefixes of the node sets that it belongs to */
  constructor(
    name: string,
    schedule: Schedule,
    random: Random,
    flaws: ReadonlySet<NodeFlaw>,
    prefixes: readonly string[] = [KEY_PREFIX],
  ) {
    this.name = name;
    this.#prefixes = prefixes;
    this.#schedule = schedule;
    this.#random = random;
    this.#flaws = flaws;
    this.master = this.#process(this.#disk);
  }

  votes(prefix: string = KEY_PREFIX): boolean {
    return this.master !== null && votingGeneration(this.master, prefix) > 0;
  }

  /** A fact of the node about itself. */
  fact(name: string, prefix: string): string | undefined {
    return (this.master?.data ?? this.#disk).hashes.get(keyOf(prefix))?.get(name);
  }

  /** True if it lost its memory, or never had any, and has not been readmitted since. */
  isWithoutMemory(prefix: string = KEY_PREFIX): boolean {
    const lost = this.#lostGenerations.get(prefix) ?? 0;
    return generation(this.master?.data ?? this.#disk, prefix) <= lost;
  }

  /**
   * True if the old master votes under a later generation than the new one, whose data is stale.
   */
  get isGhostLatest(): boolean {
    const { ghost, master } = this;
    if (!ghost) return false;
    return this.#prefixes.some(
      (prefix) => votingGeneration(ghost, prefix) > (master ? votingGeneration(master, prefix) : 0),
    );
  }

  save(): void {
    if (!this.master) return;
    this.#snapshots.push(this.master.data.clone());
    this.onMemory?.('save');
    if (this.#snapshots.length > SNAPSHOTS_MAX) this.#snapshots.shift();
  }

  crash(memory: Memory): void {
    if (!this.master) return;
    if (memory !== 'all') this.#forget();
    this.master.alive = false;
    this.#disk = this.#remembered(memory);
    this.master = null;
  }

  start(): void {
    if (this.master) return;
    this.master = this.#process(this.#disk);
    this.onMemory?.('restart');
  }

  /** A replica with older data becomes master. The old master still answers some clients. */
  failOver(memory: Memory): void {
    if (!this.master) return;
    if (memory !== 'all') this.#forget();
    this.buryGhost();
    this.ghost = this.master;
    this.master = this.#process(this.#remembered(memory));
  }

  /** The node becomes a replica of a master with older data. It still accepts writes. */
  becomeReplica(): void {
    if (!this.master) return;
    this.#forget();
    this.master.alive = false;
    this.master = this.#process(this.#remembered('snapshot'));
    this.master.role = 'slave';
  }

  /** The replica gets the older tokens and leases of its master, in place of what clients wrote. */
  replicate(): void {
    const replica = this.master;
    if (replica?.role !== 'slave') return;
    const { hashes } = this.#remembered('snapshot');
    for (const prefix of this.#prefixes) {
      const fields = hashes.get(keyOf(prefix)) ?? new Map<string, string>();
      const written = [...fields].filter(
        ([name]) => name === 'max' || name.startsWith(`${prefix}queue:`),
      );
      if (written.length > 0) replica.setFields(keyOf(prefix), Object.fromEntries(written));
    }
  }

  /** A replica becomes master in the same process, under a new replication id. */
  promote(): void {
    if (this.master?.role !== 'slave') return;
    this.master.alive = false;
    this.master = this.#process(this.master.data);
  }

  flush(): void {
    if (!this.master) return;
    this.#forget();
    this.master.data.clear();
    this.onMemory?.('restart');
  }

  /** Says whether the memory of the node's server is full from now on. */
  fill(isFull: boolean): void {
    if (this.master) this.master.isFull = isFull;
  }

  buryGhost(): void {
    if (this.isGhostLatest) this.#forget();
    if (this.ghost) this.ghost.alive = false;
    this.ghost = null;
  }

  /** Loses, of one resource, the holder of the lock or the whole record. */
  lose(what: 'lock' | 'record'): void {
    const process = this.ghost && this.#random.chance(0.3) ? this.ghost : this.master;
    const prefix = this.#anyPrefix();
    const keys = nodeKeys(prefix);
    const fields = keys.flatMap((key) => [...(process?.data.hashes.get(key)?.keys() ?? [])]);
    const queues = fields.filter((field) => field.startsWith(`${prefix}queue:`));
    const found = queues.filter(
      (queue) =>
        what === 'record' || (process && recordOf(process, keys, queue).owner !== undefined),
    );
    if (!process || found.length === 0) return;
    const lose = what === 'lock' ? free : forget;
    lose(process, keys, this.#random.pick(found));
    if (what === 'record') this.onMemory?.('forget');
  }

  /** The node's hash is evicted, or the hash before it. The wait queues are kept. */
  loseNode(which: 'node' | 'before'): void {
    if (!this.master) return;
    const [node, before] = nodeKeys(this.#anyPrefix());
    // The node remembers the hash before it only while leases in it may be valid.
    if (which === 'before' && this.master.field(node, 'before') !== '1') return;
    this.#forget();
    this.master.data.hashes.delete(which === 'node' ? node : before);
  }

  #forget(): void {
    for (const process of [this.master, this.ghost]) {
      for (const prefix of process ? this.#prefixes : []) {
        const lost = this.#lostGenerations.get(prefix) ?? 0;
        const here = process ? generation(process.data, prefix) : 0;
        this.#lostGenerations.set(prefix, Math.max(lost, here));
      }
    }
  }

  #anyPrefix(): string {
    const [only = KEY_PREFIX, ...more] = this.#prefixes;
    return more.length === 0 ? only : this.#random.pick(this.#prefixes);
  }

  #remembered(memory: Memory): NodeData {
    if (memory === 'all') return this.master?.data.clone() ?? new NodeData();
    if (memory === 'nothing' || this.#snapshots.length === 0) return new NodeData();
    return this.#random.pick(this.#snapshots).clone();
  }

  #process(data: NodeData): NodeModel {
    this.#starts += 1;
    const id = `${this.name}${this.#starts}`;
    const clockMs = (): number => Math.floor(EPOCH_MS + this.#schedule.nowMs + this.clockOffsetMs);
    const model = new NodeModel(id, data, clockMs, this.#flaws);
    model.onPublish = (channel, message) => {
      for (const hear of this.listeners) hear(channel, message);
    };
    return model;
  }
}

function keyOf(prefix: string): string {
  return nodeKeys(prefix)[0];
}

function generation(data: NodeData, prefix: string): number {
  return Number(data.hashes.get(keyOf(prefix))?.get('generation') ?? 0);
}

/** The generation under which the process votes; 0 if it does not vote. */
function votingGeneration(process: NodeModel, prefix: string): number {
  const node = process.data.hashes.get(keyOf(prefix));
  // A sealed node has its history, but it does not vote.
  const isSealed = node?.has('next_set') && !process.has('votes-though-sealed');
  const isVoter = node?.get('history') === process.history && !isSealed;
  return isVoter ? generation(process.data, prefix) : 0;
}
