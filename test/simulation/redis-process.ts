/** A protective step that a mutant leaves out, to see whether the simulation notices. */
export type NodeFlaw =
  | 'confirm-without-lock'
  | 'confirm-may-lower'
  | 'no-admission-check'
  | 'floor-not-restored'
  | 'promise-not-strict'
  | 'fence-before-floor'
  | 'members-ignored';

interface Value {
  readonly value: string;
  /** On the node's own clock; null for a key that never expires. */
  readonly expiresAtMs: number | null;
}

/** The keys of one node: what a snapshot saves and a replica copies. */
export class NodeData {
  readonly hashes: Map<string, Map<string, string>> = new Map();
  readonly strings: Map<string, Value> = new Map();

  clone(): NodeData {
    const copy = new NodeData();
    for (const [key, fields] of this.hashes) copy.hashes.set(key, new Map(fields));
    for (const [key, value] of this.strings) copy.strings.set(key, value);
    return copy;
  }

  clear(): void {
    this.hashes.clear();
    this.strings.clear();
  }
}

const ABSENT = -2;
export const WITHOUT_TTL = -1;

/** One Redis process: its keys, its clock and its name. */
export class RedisProcess {
  readonly data: NodeData;
  /** Process and replication history, as `own_run_id` of the scripts makes it. */
  readonly runId: string;
  readonly #clockMs: () => number;
  readonly #flaws: ReadonlySet<NodeFlaw>;

  constructor(
    runId: string,
    data: NodeData,
    clockMs: () => number,
    flaws: ReadonlySet<NodeFlaw> = new Set(),
  ) {
    this.runId = runId;
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
    const hash = this.data.hashes.get(key) ?? new Map<string, string>();
    for (const [name, value] of Object.entries(fields)) hash.set(name, value);
    this.data.hashes.set(key, hash);
  }

  deleteFields(key: string, names: readonly string[]): void {
    for (const name of names) this.data.hashes.get(key)?.delete(name);
  }

  get(key: string): string | undefined {
    const found = this.data.strings.get(key);
    if (found && found.expiresAtMs !== null && this.nowMs > found.expiresAtMs) {
      this.data.strings.delete(key);
      return undefined;
    }
    return found?.value;
  }

  set(key: string, value: string, ttlMs: number): void {
    this.data.strings.set(key, { value, expiresAtMs: this.nowMs + ttlMs });
  }

  persist(key: string): void {
    const value = this.get(key);
    if (value !== undefined) this.data.strings.set(key, { value, expiresAtMs: null });
  }

  pttl(key: string): number {
    if (this.get(key) === undefined) return ABSENT;
    const expiresAtMs = this.data.strings.get(key)?.expiresAtMs ?? null;
    return expiresAtMs === null ? WITHOUT_TTL : expiresAtMs - this.nowMs;
  }
}
