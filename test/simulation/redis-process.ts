/** A protective step that a mutant leaves out. The simulation should notice. */
export type NodeFlaw =
  | 'confirm-without-lock'
  | 'confirm-may-lower'
  | 'confirm-may-repeat'
  | 'no-readmission-check'
  | 'floor-not-restored'
  | 'promise-not-strict'
  | 'roster-ties-by-place'
  | 'fence-before-floor'
  | 'members-ignored'
  | 'first-takes-held'
  | 'backfill-whatever-was-given'
  | 'extended-though-not-proven'
  | 'backfill-what-was-forgotten'
  | 'backfill-by-number-of-another-incarnation'
  | 'followers-without-tokens'
  | 'lock-table-rotated-early'
  | 'lost-lock-table-unnoticed'
  | 'full-lock-table-rotated-early'
  | 'forgotten-token-below-highest'
  | 'replica-votes'
  | 'votes-though-sealed'
  | 'sealed-votes-after-restart';

/** A list, as the JSON of its elements. */
interface Value {
  readonly value: string;
  /** The time of expiry, by the node's own clock. */
  readonly expiresAtMs: number;
}

/** A wait queue: a sorted set. */
interface Queue {
  readonly scores: ReadonlyMap<string, number>;
  readonly expiresAtMs: number;
}

/** The keys of one node. A snapshot saves them, and a replica copies them. */
export class NodeData {
  readonly hashes: Map<string, Map<string, string>> = new Map();
  readonly lists: Map<string, Value> = new Map();
  readonly queues: Map<string, Queue> = new Map();

  clone(): NodeData {
    const copy = new NodeData();
    for (const [key, fields] of this.hashes) copy.hashes.set(key, new Map(fields));
    for (const [key, value] of this.lists) copy.lists.set(key, value);
    for (const [key, queue] of this.queues) copy.queues.set(key, queue);
    return copy;
  }

  clear(): void {
    this.hashes.clear();
    this.lists.clear();
    this.queues.clear();
  }
}

const ABSENT = -2;

/** The first write of a script was refused. */
export class MemoryFullError extends Error {
  constructor() {
    super("OOM command not allowed when used memory > 'maxmemory'.");
  }
}

/** One Redis process: its keys, its clock and its name. */
export class RedisProcess {
  /** Work that the present script has spent on other waiters than its callers. It is limited. */
  spent = { expired: 0, queuesExamined: 0 };
  readonly data: NodeData;
  /** True if the first write of a script is refused, unless it needs no memory. */
  isFull = false;
  /** False while a script runs that has not written yet. */
  protected hasWritten = true;
  onPublish: ((channel: string, message: string) => void) | null = null;
  /** Replication history, as `own_history` of the script reads it. A replica has its master's. */
  readonly history: string;
  role: 'master' | 'slave' = 'master';
  readonly #clockMs: () => number;
  readonly #flaws: ReadonlySet<NodeFlaw>;

  constructor(
    history: string,
    data: NodeData,
    clockMs: () => number,
    flaws: ReadonlySet<NodeFlaw> = new Set(),
  ) {
    this.history = history;
    this.data = data;
    this.#clockMs = clockMs;
    this.#flaws = flaws;
  }

  get nowMs(): number {
    return this.#clockMs();
  }

  has(flaw: NodeFlaw): boolean {
    return this.#flaws.has(flaw);
  }

  field(key: string, name: string): string | undefined {
    return this.data.hashes.get(key)?.get(name);
  }

  setFields(key: string, fields: Readonly<Record<string, string>>): void {
    this.#take();
    const hash = this.data.hashes.get(key) ?? new Map<string, string>();
    for (const [name, value] of Object.entries(fields)) hash.set(name, value);
    this.data.hashes.set(key, hash);
  }

  /** A write that needs no memory. No later write of the script is refused. */
  writeThoughFull(): void {
    this.hasWritten = true;
  }

  deleteFields(key: string, names: readonly string[]): void {
    this.writeThoughFull();
    for (const name of names) this.data.hashes.get(key)?.delete(name);
    if (this.data.hashes.get(key)?.size === 0) this.data.hashes.delete(key);
  }

  /** Moves a hash. If there is none, the target is deleted. */
  rename(key: string, to: string): void {
    this.writeThoughFull();
    const hash = this.data.hashes.get(key);
    this.data.hashes.delete(key);
    this.data.hashes.delete(to);
    if (hash) this.data.hashes.set(to, hash);
  }

  get(key: string): string | undefined {
    const found = this.data.lists.get(key);
    if (found && this.nowMs > found.expiresAtMs) {
      this.data.lists.delete(key);
      return undefined;
    }
    return found?.value;
  }

  set(key: string, value: string, ttlMs: number): void {
    this.#take();
    this.data.lists.set(key, { value, expiresAtMs: this.nowMs + ttlMs });
  }

  /** Lets a list expire after `ttlMs`. */
  expire(key: string, ttlMs: number): void {
    const value = this.get(key);
    if (value === undefined) return;
    this.writeThoughFull();
    this.data.lists.set(key, { value, expiresAtMs: this.nowMs + ttlMs });
  }

  /** Adds an element to a list and keeps its expiry. */
  push(key: string, element: string): void {
    this.#take();
    const found = this.data.lists.get(key);
    if (!found) throw new Error(`there is no list ${key}`);
    this.data.lists.set(key, {
      ...found,
      value: JSON.stringify([...JSON.parse(found.value), element]),
    });
  }

  pttl(key: string): number {
    if (this.get(key) === undefined && this.queue(key).length === 0) return ABSENT;
    const found = this.data.lists.get(key) ?? this.data.queues.get(key);
    return found ? found.expiresAtMs - this.nowMs : ABSENT;
  }

  /** The members of a sorted set, in order. */
  queue(key: string): readonly string[] {
    const found = this.data.queues.get(key);
    if (!found) return [];
    if (this.nowMs > found.expiresAtMs) {
      this.data.queues.delete(key);
      return [];
    }
    const byScore = ([a, x]: [string, number], [b, y]: [string, number]) =>
      x - y || (a < b ? -1 : 1);
    return [...found.scores].sort(byScore).map(([member]) => member);
  }

  score(key: string, member: string): number {
    return this.data.queues.get(key)?.scores.get(member) ?? 0;
  }

  /** Adds a member with a score. The set then lasts at least `ttlMs`. */
  enqueue(key: string, member: string, score: number, ttlMs: number): void {
    this.#take();
    const left = this.pttl(key);
    const { scores = new Map<string, number>(), expiresAtMs = 0 } = this.data.queues.get(key) ?? {};
    this.data.queues.set(key, {
      scores: new Map(scores).set(member, score),
      expiresAtMs: left < ttlMs ? this.nowMs + ttlMs : expiresAtMs,
    });
  }

  leave(key: string, member: string): void {
    this.writeThoughFull();
    const found = this.data.queues.get(key);
    const scores = new Map(found?.scores);
    scores.delete(member);
    if (!found || scores.size === 0) this.data.queues.delete(key);
    else this.data.queues.set(key, { ...found, scores });
  }

  remove(key: string): void {
    this.writeThoughFull();
    this.data.lists.delete(key);
  }

  /** A write that needs memory. */
  #take(): void {
    if (this.isFull && !this.hasWritten) throw new MemoryFullError();
    this.hasWritten = true;
  }

  /** Delivers a message to the present subscribers. */
  publish(channel: string, message: string): void {
    this.onPublish?.(channel, message);
  }
}
