import type { Runtime } from './runtime.js';
import type { NodeVote, ObjectStore, Services } from './services.js';
import { shared } from './shared.js';

/** The result of one check of all dependencies. */
export interface ReadinessResult {
  readonly isReady: boolean;
  /** One for each dependency, such as `[+]lock 3 of 3 nodes vote, 3 answer`. */
  readonly lines: readonly string[];
  /** The failures, with details for operators only, for the log. Null if there are none. */
  readonly reason: Error | null;
}

/** Resolves with a remark if the dependency can be used, and rejects if it cannot. */
type Check = () => Promise<string>;
type Dependencies = Pick<Services, 'lock' | 'objects' | 'records'>;

/** Time for a dependency to answer. */
const CHECK_LIMIT_MS = 3_000;
/** Time for which all callers get the same result. */
const FRESH_MS = 500;
/** The part of a node's `maxmemory` above which a line warns. */
const MEMORY_WARNING = 0.75;
/** The checks read under this name. Nothing is ever written there. */
const NAME = 'fenced-readyz';

/**
 * Checks whether this gateway can do its work now. A result is kept for a moment only, so readiness
 * recovers by itself.
 */
export class Readiness {
  readonly #checks: ReadonlyMap<string, Check>;
  readonly #draining: AbortSignal;
  readonly #runtime: Runtime;
  readonly #fresh: () => Promise<ReadinessResult>;

  constructor(services: Dependencies, draining: AbortSignal, runtime: Runtime) {
    this.#checks = checksOf(services);
    this.#draining = draining;
    this.#runtime = runtime;
    this.#fresh = shared(() => this.#checkAll(), FRESH_MS, runtime);
  }

  async check(): Promise<ReadinessResult> {
    if (this.#draining.aborted) {
      const reason = new Error('the gateway is shutting down');
      return { isReady: false, lines: ['[-]gateway shutting down'], reason };
    }
    return this.#fresh();
  }

  async #checkAll(): Promise<ReadinessResult> {
    const results = await Promise.all(
      [...this.#checks].map(async ([name, check]) => {
        try {
          return { line: `[+]${name} ${await this.#inTime(check())}`, failures: [] };
        } catch (error) {
          return { line: `[-]${name} ${remarkOf(error)}`, failures: [{ name, error }] };
        }
      }),
    );
    const failures = results.flatMap((result) => result.failures);
    const messages = failures.map(({ name, error }) => `${name}: ${(error as Error).message}`);
    const isReady = failures.length === 0;
    return {
      isReady,
      lines: results.map(({ line }) => line),
      reason: isReady ? null : new Error(messages.join('; '), { cause: failures[0]?.error }),
    };
  }

  async #inTime<Value>(promise: Promise<Value>): Promise<Value> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    const cancel = this.#runtime.after(CHECK_LIMIT_MS, () =>
      reject(new Error(`no answer within ${CHECK_LIMIT_MS} ms`)),
    );
    return Promise.race([promise, late]).finally(cancel);
  }
}

function checksOf({ lock, objects, records }: Dependencies): ReadonlyMap<string, Check> {
  const checks = new Map<string, Check>([['lock', () => votes(lock)]]);
  if (objects) checks.set('s3', () => reachable(objects));
  if (records)
    checks.set('postgres', async () => {
      await records.records(NAME).highest(NAME);
      return 'ok';
    });
  return checks;
}

/**
 * Resolves if a majority of the nodes votes: with less, each request for a lease is refused. A new
 * or restarted node votes once a client has readmitted it. Clients may send a gateway that is not
 * ready no request, so the check itself readmits nodes.
 */
async function votes(lock: Services['lock']): Promise<string> {
  if (lock.status === undefined) return 'ok';
  let nodes = await lock.status();
  if (!hasMajority(nodes)) {
    await lock.readmit?.();
    nodes = await lock.status();
  }
  const voting = nodes.filter(isVoting).length;
  const reachable = nodes.filter((node) => node.reachable).length;
  const filling = nodes.filter(
    ({ usedMemoryBytes = 0, maxMemoryBytes }) =>
      maxMemoryBytes && usedMemoryBytes > MEMORY_WARNING * maxMemoryBytes,
  );
  const memory = filling.length > 0 ? `, ${filling.length} are above 75 % of maxmemory` : '';
  const text = `${voting} of ${nodes.length} nodes vote, ${reachable} answer${memory}`;
  if (!hasMajority(nodes)) throw new Error(text);
  return text;
}

function isVoting({ reachable, noVote = null }: NodeVote): boolean {
  return reachable && noVote === null;
}

function hasMajority(nodes: readonly NodeVote[]): boolean {
  return 2 * nodes.filter(isVoting).length > nodes.length;
}

/** Resolves if the bucket answers, and was found to enforce conditional writes. */
async function reachable(objects: ObjectStore): Promise<string> {
  await objects.probe();
  await objects.highest(NAME);
  return 'ok';
}

/** A remark without addresses and other details for operators only. */
function remarkOf(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  return code ?? message ?? 'failed';
}
