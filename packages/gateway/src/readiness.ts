import type { LeaseService, ObjectStore, RecordStore } from './parts.js';
import type { Runtime } from './runtime.js';
import { shared } from './shared.js';

/** What one look at all dependencies found. */
export interface Found {
  readonly isReady: boolean;
  /** One for each dependency, as `[+]redis 3 of 3 nodes vote`. */
  readonly lines: readonly string[];
  /** What is missing, for the log: with what only operators may know. Null if nothing is. */
  readonly reason: Error | null;
}

interface Dependency {
  readonly name: string;
  /** @returns what to say of it. @throws where it cannot be relied on */
  look(): Promise<string>;
}

/** How long a dependency may take to answer. */
const LOOK_LIMIT_MS = 3_000;
/** So long everybody who asks is told the same. */
const FRESH_MS = 500;
/** The part of a node's `maxmemory` above which operators are to know of it. */
const MEMORY_WARNING = 0.75;
/** A name that is only looked at. */
const NAME = 'fenced-readyz';

/** Whether this gateway can do its work now. Not remembered for longer than a moment, so it comes back by itself. */
export class Readiness {
  readonly #dependencies: readonly Dependency[];
  readonly #draining: AbortSignal | undefined;
  readonly #runtime: Runtime;
  readonly #found: () => Promise<Found>;

  constructor(
    parts: {
      readonly redlock: LeaseService;
      readonly objects?: ObjectStore | undefined;
      readonly records?: RecordStore | undefined;
    },
    draining: AbortSignal | undefined,
    runtime: Runtime,
  ) {
    this.#dependencies = dependenciesOf(parts);
    this.#draining = draining;
    this.#runtime = runtime;
    this.#found = shared(() => this.#lookAtAll(), FRESH_MS, runtime);
  }

  async look(): Promise<Found> {
    if (this.#draining?.aborted) {
      const reason = new Error('the gateway is shutting down');
      return { isReady: false, lines: ['[-]gateway shutting down'], reason };
    }
    return this.#found();
  }

  async #lookAtAll(): Promise<Found> {
    const found = await Promise.all(
      this.#dependencies.map(async ({ name, look }) => {
        try {
          return { line: `[+]${name} ${await this.#inTime(look())}`, failures: [] };
        } catch (error) {
          return { line: `[-]${name} ${reasonOf(error)}`, failures: [{ name, error }] };
        }
      }),
    );
    const failures = found.flatMap((one) => one.failures);
    return {
      isReady: failures.length === 0,
      lines: found.map(({ line }) => line),
      reason: failures.length === 0 ? null : asReason(failures),
    };
  }

  async #inTime<Value>(promise: Promise<Value>): Promise<Value> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    const cancel = this.#runtime.after(LOOK_LIMIT_MS, () =>
      reject(new Error(`no answer within ${LOOK_LIMIT_MS} ms`)),
    );
    return Promise.race([promise, late]).finally(cancel);
  }
}

function dependenciesOf({
  redlock,
  objects,
  records,
}: {
  readonly redlock: LeaseService;
  readonly objects?: ObjectStore | undefined;
  readonly records?: RecordStore | undefined;
}): readonly Dependency[] {
  return [
    { name: 'lock', look: () => votes(redlock) },
    ...(objects ? [{ name: 's3', look: () => reachable(objects) }] : []),
    ...(records
      ? [
          {
            name: 'postgres',
            look: () =>
              records
                .records(NAME)
                .highest(NAME)
                .then(() => 'ok'),
          },
        ]
      : []),
  ];
}

async function votes(redlock: LeaseService): Promise<string> {
  if (redlock.status === undefined) return 'ok';
  const nodes = await redlock.status();
  const voting = nodes.filter(({ reachable, noVote }) => reachable && noVote === null).length;
  // A node that was never used, or has restarted, votes as soon as somebody asks for a lease.
  const reachable = nodes.filter((node) => node.reachable).length;
  const filling = nodes.filter(
    ({ usedMemoryBytes = 0, maxMemoryBytes }) =>
      maxMemoryBytes && usedMemoryBytes > MEMORY_WARNING * maxMemoryBytes,
  );
  const memory = filling.length > 0 ? `, ${filling.length} are above 75 % of maxmemory` : '';
  const text = `${voting} of ${nodes.length} nodes vote, ${reachable} answer${memory}`;
  if (2 * reachable <= nodes.length) throw new Error(text);
  return text;
}

/** The store has been seen to enforce what fencing rests on, and answers now. */
async function reachable(objects: ObjectStore): Promise<string> {
  await objects.probe();
  await objects.highest(NAME);
  return 'ok';
}

function asReason(failures: readonly { readonly name: string; readonly error: unknown }[]): Error {
  const all = failures.map(({ name, error }) => `${name}: ${(error as Error).message}`);
  return new Error(all.join('; '), { cause: failures[0]?.error });
}

/** Without addresses and what else only operators may know. */
function reasonOf(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  return code ?? message ?? 'failed';
}
