import { classify, type Meaning, type Operation } from '../../core/classify.js';
import { FencedStoreError, StoreSetupError, StoreUnavailableError } from '../../core/errors.js';
import { publish } from '../../events.js';
import type { S3Calls } from '../client.js';
import { Retries, type Runtime, timeLimit } from '../runtime.js';
import { briefly, bypassed, explain, factsOf } from './failures.js';
import { type Observed, observe, type Sending, type Stack } from './observe.js';

/** One request. */
export interface Ask<Output> {
  readonly operation: Operation;
  readonly key: string;
  readonly command: { readonly middlewareStack: Stack };
  /** `lift` ends the time limit: the signal would end a body, too, that is still being read. */
  readonly send: (abortSignal: AbortSignal, lift: () => void) => Promise<Output>;
  readonly signal: AbortSignal | undefined;
  /** How much it sends. */
  readonly bytes?: number;
  readonly halfway?: Sending['halfway'];
}

/** What a request was answered; `observed` and `answered` say it in the server's own words. */
export type Reply<Output> = { readonly observed: Observed; readonly answered: string } & (
  | { readonly ok: true; readonly output: Output }
  | { readonly ok: false; readonly meaning: Meaning; readonly error: FencedStoreError }
);

/** What another try may mend. */
const PASSING: ReadonlySet<Meaning> = new Set(['ambiguous', 'throttled', 'unreachable']);

/** How often a request that may be repeated at will is sent. */
const SENDS_MAX = 4;
/** Milliseconds that a server may take for each MiB that it checks or puts together, besides the limit for the request. */
const SERVER_MS_PER_MIB = 1_000;
/** The same of a slow line, for what has been handed to the system and is on its way: that much at most. */
const LINE_MS_PER_MIB = 8_000;
const ON_THE_WAY_MIB_MAX = 4;

/** Hands requests to the caller's client, one at a time and each with a time limit, and says what the answers mean. */
export class Sender {
  readonly client: S3Calls;
  readonly bucket: string;
  readonly timeoutMs: number;
  readonly #runtime: Runtime;
  /** A 404 to HEAD has no name: until something of the bucket was seen, the bucket itself may be what is missing. */
  bucketSeen = false;
  /** Who answered last: the address, and what the server calls itself. */
  peer = '';

  constructor(client: S3Calls, bucket: string, timeoutMs: number, runtime: Runtime) {
    this.client = client;
    this.bucket = bucket;
    this.timeoutMs = timeoutMs;
    this.#runtime = runtime;
  }

  /** Sends a request exactly once. */
  async once<Output>(ask: Ask<Output>): Promise<Reply<Output>> {
    const mib = (ask.bytes ?? 0) / 2 ** 20;
    const limitMs = this.timeoutMs + Math.ceil(mib * SERVER_MS_PER_MIB);
    const limit = timeLimit(limitMs);
    const observed = observe(ask.command.middlewareStack, {
      halfway: ask.halfway,
      onPiece: () => limit.renew(),
      onLast: () =>
        limit.renew(limitMs + Math.ceil(Math.min(mib, ON_THE_WAY_MIB_MAX) * LINE_MS_PER_MIB)),
    });
    try {
      const { signal } = ask;
      const either = signal ? AbortSignal.any([limit.signal, signal]) : limit.signal;
      const output = await ask.send(either, limit.lift);
      if (!observed.entered) {
        const error = bypassed(this.#where(ask, observed));
        return { ok: false, meaning: 'unseen', error, observed, answered: '200' };
      }
      this.bucketSeen = true;
      return { ok: true, output, observed, answered: '200' };
    } catch (cause) {
      return this.#failed(ask, observed, cause);
    } finally {
      limit.lift();
      if (observed.address !== undefined)
        this.peer = `${observed.address} ${observed.server ?? ''}`;
    }
  }

  /**
   * Sends a request that may be repeated at will, until it has an answer.
   *
   * @param isPatient whether it waits for a server that throttles
   * @throws {FencedStoreError} where it failed otherwise than by `missing` or `unnamed`; the signal's reason.
   */
  async repeatedly<Output>(ask: () => Ask<Output>, isPatient = true): Promise<Reply<Output>> {
    const retries = new Retries(this.#runtime, SENDS_MAX);
    for (;;) {
      // A command's middleware is its own, so each copy is a new command.
      const asked = ask();
      asked.signal?.throwIfAborted();
      const reply = await this.once(asked);
      if (reply.ok) return reply;
      asked.signal?.throwIfAborted();
      if (reply.meaning === 'missing' || reply.meaning === 'unnamed') {
        if (asked.operation !== 'head') this.bucketSeen = true;
        return reply;
      }
      const isThrottled = isPatient && reply.meaning === 'throttled';
      if (!PASSING.has(reply.meaning) || !(await retries.next(isThrottled, asked.signal)))
        throw reply.error;
      this.publishRetry(asked.key, retries.made, reply);
    }
  }

  /** @param reply what the attempt was answered; without one, others were quicker */
  publishRetry(
    key: string,
    attempt: number,
    reply?: { readonly meaning: string; readonly error?: unknown },
  ): void {
    publish('fenced:store:retried', () => ({
      ...{ store: 's3', bucket: this.bucket, resources: [key], attempt },
      reason: (reply?.meaning ?? 'refused') === 'refused' ? 'conflict' : 'unavailable',
      ...(reply?.error !== undefined && { error: reply.error }),
    }));
  }

  #where<Output>({ operation, key }: Ask<Output>, { address }: Observed): string {
    return `bucket=${this.bucket} key=${JSON.stringify(key)} endpoint=${address ?? 'unknown'} operation=${operation}`;
  }

  #failed<Output>(ask: Ask<Output>, observed: Observed, cause: unknown): Reply<Output> {
    const facts = factsOf(cause);
    const answered = briefly(facts);
    if (cause instanceof FencedStoreError) {
      // What looks like no answer of S3 at all may be one that was garbled on the way, and worth another try.
      const isPassing = cause instanceof StoreUnavailableError || cause instanceof StoreSetupError;
      const meaning = isPassing ? 'ambiguous' : 'rejected';
      return { ok: false, meaning, error: cause, observed, answered };
    }
    const seen = observed.entered ? 'no' : 'unseen';
    const sent = observed.address === undefined ? seen : 'yes';
    const { operation } = ask;
    const meaning = classify({ operation, sent, ...facts });
    const error = explain(meaning, facts, this.#where(ask, observed), cause);
    return { ok: false, meaning, error, observed, answered };
  }
}
