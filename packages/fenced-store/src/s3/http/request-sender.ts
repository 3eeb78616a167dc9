import type { ServiceInputTypes, ServiceOutputTypes } from '@aws-sdk/client-s3';
import { classify, type Meaning, type Operation } from '../../core/classify.js';
import { FencedStoreError, StoreSetupError, StoreUnavailableError } from '../../core/errors.js';
import { publish } from '../../events.js';
import type { S3Calls, S3Command } from '../client.js';
import { Retries, type Runtime, timeLimit } from '../runtime.js';
import { briefly, bypassed, explain, factsOf } from './explain.js';
import { type Observed, observe } from './middleware.js';

/** One request. */
export interface Request<
  Input extends ServiceInputTypes,
  Output extends ServiceOutputTypes,
  Read = Output,
> {
  readonly operation: Operation;
  readonly key: string;
  readonly signal?: AbortSignal | undefined;
  /** Makes a new command for each attempt, because a command has middleware of its own. */
  readonly command: () => S3Command<Input, Output>;
  /**
   * Reads the reply. `lift` ends the time limit, which would also end a body that is still read.
   */
  readonly read?: (output: Output, lift: () => void) => Read | Promise<Read>;
  /** Size of the body that it sends, or that the server must put together. @default 0 */
  readonly bytes?: number;
  /** Holds back the second half of the body until this is settled; for probes. */
  readonly halfway?: (() => Promise<unknown>) | undefined;
  /** True if the SDK need not check the body, because its reader does. @default false */
  readonly isVerified?: boolean;
}

/** The reply to a request. `answered` has the server's words, for reports. */
export type Reply<Read> = { readonly answered: string } & (
  | { readonly ok: true; readonly output: Read }
  | { readonly ok: false; readonly meaning: Meaning; readonly error: FencedStoreError }
);

/** Failures that may pass by the next attempt. */
const PASSING: ReadonlySet<Meaning> = new Set([
  'ambiguous',
  'throttled',
  'unaccepted',
  'unreachable',
]);

/** Number of attempts of a request that may be repeated. */
const SENDS_MAX = 4;
/** Additional time for each MiB that a server must check or put together. */
const SERVER_MS_PER_MIB = 1_000;
/** Additional time for each MiB that the operating system has taken and may not have sent yet. */
const LINE_MS_PER_MIB = 8_000;
const UNDELIVERED_MIB_MAX = 4;

/**
 * Sends requests through the caller's client, each with a time limit, and classifies the replies.
 */
export class RequestSender {
  readonly client: S3Calls;
  readonly bucket: string;
  readonly timeoutMs: number;
  readonly #runtime: Runtime;
  /** True once the bucket is known to exist. Before, it may be missing if HEAD is answered 404. */
  bucketSeen = false;
  /** Address and name of the server that answered last. */
  peer = '';

  constructor(client: S3Calls, bucket: string, timeoutMs: number, runtime: Runtime) {
    this.client = client;
    this.bucket = bucket;
    this.timeoutMs = timeoutMs;
    this.#runtime = runtime;
  }

  /** Sends a request exactly once. */
  async once<Input extends ServiceInputTypes, Output extends ServiceOutputTypes, Read = Output>(
    request: Request<Input, Output, Read>,
  ): Promise<Reply<Read>> {
    const { signal, bytes = 0, halfway, isVerified = false } = request;
    const command = request.command();
    const mib = bytes / 2 ** 20;
    const limitMs = this.timeoutMs + Math.ceil(mib * SERVER_MS_PER_MIB);
    const lineMs = Math.ceil(Math.min(mib, UNDELIVERED_MIB_MAX) * LINE_MS_PER_MIB);
    const limit = timeLimit(limitMs);
    const observed = observe(command.middlewareStack, {
      halfway,
      isVerified,
      onPiece: () => limit.renew(),
      onLast: () => limit.renew(limitMs + lineMs),
    });
    try {
      const abortSignal = signal ? AbortSignal.any([limit.signal, signal]) : limit.signal;
      const sent = await this.client.send(command, { abortSignal });
      const output = request.read
        ? await request.read(sent, limit.lift)
        : (sent as unknown as Read);
      if (!observed.entered) {
        const error = bypassed(this.#where(request, observed));
        return { ok: false, meaning: 'unseen', error, answered: '200' };
      }
      this.bucketSeen = true;
      return { ok: true, output, answered: '200' };
    } catch (cause) {
      return { ok: false, ...this.#failure(request, observed, cause) };
    } finally {
      limit.lift();
      const { address, server = '' } = observed;
      if (address !== undefined) this.peer = `${address} ${server}`;
    }
  }

  /**
   * Sends a request that may be repeated, until it is answered.
   *
   * @param isPatient whether it waits for a server that throttles
   * @throws {FencedStoreError} if it failed, except for `missing` and `unnamed`.
   * @throws the signal's reason
   */
  async repeatedly<
    Input extends ServiceInputTypes,
    Output extends ServiceOutputTypes,
    Read = Output,
  >(request: Request<Input, Output, Read>, isPatient = true): Promise<Reply<Read>> {
    const { operation, key, signal } = request;
    const retries = new Retries(this.#runtime, SENDS_MAX);
    for (;;) {
      signal?.throwIfAborted();
      const reply = await this.once(request);
      if (reply.ok) return reply;
      signal?.throwIfAborted();
      const { meaning } = reply;
      if (meaning === 'missing' || meaning === 'unnamed') {
        if (operation !== 'head') this.bucketSeen = true;
        return reply;
      }
      const isThrottled = isPatient && meaning === 'throttled';
      if (!PASSING.has(meaning) || !(await retries.next(isThrottled, signal))) throw reply.error;
      this.publishRetry(key, retries.made, reply);
    }
  }

  /** @param reply the reply to the attempt; without one, another write was quicker */
  publishRetry(
    key: string,
    attempt: number,
    reply?: { readonly meaning: string; readonly error?: unknown },
  ): void {
    publish('fenced:store:retried', () => ({
      store: 's3',
      bucket: this.bucket,
      resources: [key],
      attempt,
      reason: (reply?.meaning ?? 'refused') === 'refused' ? 'conflict' : 'unavailable',
      ...(reply?.error !== undefined && { error: reply.error }),
    }));
  }

  #where(
    { operation, key }: { readonly operation: Operation; readonly key: string },
    { address = 'unknown' }: Observed,
  ): string {
    return `bucket=${this.bucket} key=${JSON.stringify(key)} endpoint=${address} operation=${operation}`;
  }

  #failure(
    request: { readonly operation: Operation; readonly key: string },
    observed: Observed,
    cause: unknown,
  ): { readonly meaning: Meaning; readonly error: FencedStoreError; readonly answered: string } {
    const facts = factsOf(cause);
    const answered = briefly(facts);
    if (cause instanceof FencedStoreError) {
      // A reply that is not S3's may have been damaged on its way. Another attempt may succeed.
      const isPassing = cause instanceof StoreUnavailableError || cause instanceof StoreSetupError;
      return { meaning: isPassing ? 'ambiguous' : 'rejected', error: cause, answered };
    }
    const unsent = observed.entered ? 'no' : 'unseen';
    const sent = observed.address === undefined ? unsent : 'yes';
    const meaning = classify({ operation: request.operation, sent, ...facts });
    const error = explain(meaning, facts, this.#where(request, observed), cause);
    return { meaning, error, answered };
  }
}
