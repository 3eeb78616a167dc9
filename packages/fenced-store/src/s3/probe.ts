import {
  CorruptObjectError,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
} from '../core/errors.js';
import type { Stored } from '../core/stored.js';
import { seal, stamped } from './member.js';
import type { PutReply, Requests } from './requests.js';
import { backoffMs, type Runtime } from './runtime.js';

/** How the server wants ETags in `If-Match`. Ceph 16 compares them with their quotes, so that quoted ones never fit. */
export type EtagForm = 'quoted' | 'bare';

/** What a server was seen to enforce. There is one only for servers that enforce all that the token check rests on. */
export interface StoreCapabilities {
  readonly etagForm: EtagForm;
  /** The names of the checks that were passed, in their order. */
  readonly checks: readonly string[];
}

/** A version as `If-Match` wants it. */
export function etagHeader(version: string, form: EtagForm): string {
  return form === 'quoted' ? `"${version}"` : version;
}

const WRITERS = 8;
const ROUNDS = 2;
const RUNS_MAX = 3;

/**
 * Finds out whether a server does what it says: fencing on one that ignores conditions would be a lie.
 *
 * @throws {UnsafeStoreError} where a condition is not enforced.
 * @throws {StoreSetupError} where bucket, credentials or address are wrong, or the server is not S3.
 * @throws {StoreUnavailableError} where it does not answer, so that nothing was learnt.
 */
export async function probe(
  requests: Requests,
  prefix: string,
  runtime: Runtime,
): Promise<StoreCapabilities> {
  for (let run = 1; ; run++) {
    const checks = new Probe(requests, `${prefix}${runtime.writeId()}`, runtime);
    try {
      return await checks.all();
    } catch (error) {
      // A reply was lost, so this run can say neither yes nor no. The next has keys of its own.
      if (!(error instanceof StoreUnavailableError) || run === RUNS_MAX) throw asSetup(error);
    } finally {
      await checks.cleanUp();
    }
    await runtime.sleep(backoffMs(runtime, run));
  }
}

class Probe {
  readonly #requests: Requests;
  readonly #key: string;
  readonly #runtime: Runtime;
  readonly #passed: string[] = [];
  readonly #touched = new Set<string>();

  constructor(requests: Requests, key: string, runtime: Runtime) {
    this.#requests = requests;
    this.#key = key;
    this.#runtime = runtime;
  }

  async all(): Promise<StoreCapabilities> {
    const key = `${this.#key}/conditions`;
    const first = this.#accepted('create', (await this.#put(key, null)).reply);
    this.#refused('create-again', (await this.#put(key, null)).reply);
    const { etagForm, version } = await this.#learnEtagForm(key, first);
    const ifMatch = (version: string): string => etagHeader(version, etagForm);
    this.#refused('update-with-old-etag', (await this.#put(key, ifMatch(first))).reply);
    this.#refused('update-with-wrong-etag', (await this.#put(key, ifMatch('0'.repeat(32)))).reply);
    for (let round = 1; round <= ROUNDS; round++) {
      const raced = `${this.#key}/race-${round}`;
      const winner = await this.#race('race-of-creates', raced, null);
      await this.#race('race-of-updates', raced, ifMatch(winner.version));
    }
    await this.#readBack(key, version);
    return { etagForm, checks: [...new Set(this.#passed)] };
  }

  /** Removes what the probe has written. What cannot be removed stays as litter: that says nothing about safety. */
  async cleanUp(): Promise<void> {
    await Promise.allSettled([...this.#touched].map((key) => this.#requests.remove(key)));
  }

  async #learnEtagForm(
    key: string,
    first: string,
  ): Promise<{ readonly etagForm: EtagForm; readonly version: string }> {
    const check = 'update-with-current-etag';
    const quoted = await this.#put(key, etagHeader(first, 'quoted'));
    if (quoted.reply.meaning !== 'refused')
      return { etagForm: 'quoted', version: this.#accepted(check, quoted.reply) };
    const bare = await this.#put(key, etagHeader(first, 'bare'));
    return { etagForm: 'bare', version: this.#accepted(check, bare.reply) };
  }

  /**
   * Several writers at once, under one condition: one must win. Losers may be answered anything (Ceph 16 says 500 to most),
   * but who is told of success must be the one whose write is stored.
   */
  async #race(check: string, key: string, ifMatch: string | null): Promise<Stored> {
    const replies = await Promise.all(
      Array.from({ length: WRITERS }, () => this.#put(key, ifMatch)),
    );
    const stored = await this.#requests.head(key);
    const told = replies.filter(({ reply }) => reply.meaning === 'applied');
    if (told.length > 1 || told.some(({ writeId }) => writeId !== stored?.writeId))
      throw unsafe(
        check,
        `${told.length} of ${WRITERS} writers under one condition were told of success, which is not what is stored`,
      );
    if (stored === null || !replies.some(({ writeId }) => writeId === stored.writeId))
      throw new StoreUnavailableError(
        `none of ${WRITERS} writers under one condition had success check=${check}`,
        { cause: replies.map(({ reply }) => reply) },
      );
    this.#pass(check);
    return stored;
  }

  /** What was written last must come back whole: bytes, metadata and ETag. */
  async #readBack(key: string, version: string): Promise<void> {
    const object = await this.#requests.get(key);
    if (object?.stored.version !== version)
      throw unsafe('read-back', 'what was stored is not what was written last');
    this.#pass('read-back');
  }

  async #put(
    key: string,
    ifMatch: string | null,
  ): Promise<{ readonly writeId: string; readonly reply: PutReply }> {
    this.#touched.add(key);
    const writeId = this.#runtime.writeId();
    const stamp = { token: 1n, writeId };
    const reply = await this.#requests.put({
      key,
      ifMatch,
      stored: { ...stamp, state: 'live', before: [] },
      member: stamped(await seal(Buffer.from('probe'), 1), stamp),
      headers: {},
    });
    return { writeId, reply };
  }

  #accepted(check: string, reply: PutReply): string {
    if (reply.meaning === 'refused')
      throw unsafe(check, 'a write whose condition held was refused', reply.error);
    if (reply.meaning === 'unsupported')
      throw unsafe(check, 'conditional writes are not supported', reply.error);
    if (reply.meaning !== 'applied') throw reply.error;
    if (reply.version === undefined)
      throw new StoreSetupError(
        'the endpoint does not answer like S3: a PUT was answered without an ETag',
      );
    this.#pass(check);
    return reply.version;
  }

  #refused(check: string, reply: PutReply): void {
    if (reply.meaning === 'applied')
      throw unsafe(check, 'a write whose condition did not hold was applied');
    if (reply.meaning !== 'refused') throw reply.error;
    this.#pass(check);
  }

  #pass(check: string): void {
    this.#passed.push(check);
  }
}

function unsafe(check: string, reason: string, cause?: FencedStoreError): UnsafeStoreError {
  return new UnsafeStoreError(
    check,
    `the store does not enforce conditional writes, so no write was sent to it: ${reason} check=${check}`,
    { cause },
  );
}

/** An object that the probe has just written can only come back changed where something on the way changes it. */
function asSetup(error: unknown): unknown {
  if (!(error instanceof CorruptObjectError)) return error;
  return new StoreSetupError(
    `what was written came back changed: the request handler of the S3 client or a proxy decompresses or strips what is stored; use NodeHttpHandler and a plain connection (${error.message})`,
    { cause: error },
  );
}
