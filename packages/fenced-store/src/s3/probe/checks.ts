import { type EtagForm, etagHeader, type VersionIds } from '../../core/capabilities.js';
import {
  type CheckReport,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
} from '../../core/errors.js';
import { fullHistory, type Stored } from '../../core/stored.js';
import { seal, stamp } from '../codec/seal.js';
import type { Content, Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { backoffMs, type Runtime } from '../runtime.js';

/**
 * Moto 5 with threads checks a condition, and some 0.1 ms later writes without a lock. Under load an acknowledged write is lost, but
 * hardly ever in a race that a probe can afford, so it is known by the web server that it comes with.
 */
const LOCKLESS_SERVER = /Werkzeug\//;
/** How often checks are begun anew because a reply was lost. */
const RUNS_MAX = 3;
/** How often a write whose condition does not hold is sent. */
const LATE_SENDS_MAX = 6;
/** So many writes of other keys, one after the other, are answered before a write is taken for one that has to wait. */
const WRITES_ELSEWHERE = 8;
/** Milliseconds from the first half of a body to the write that overtakes it. */
const OVERTAKEN_AFTER_MS = 100;

/** A write of the probe, and what it was answered. */
export interface Tried {
  readonly writeId: string;
  readonly sent: string;
  readonly reply: WriteReply;
}

/** A write that is ready to be sent. */
export interface Draft {
  readonly put: Put;
  readonly content: Uint8Array;
}

/**
 * Runs checks under new keys below `prefix`, and removes what they have written. If a reply was lost, that run can say neither
 * yes nor no: the next one has keys of its own.
 *
 * @throws {StoreUnavailableError} where a reply of each run was lost.
 */
export async function inRuns<T>(
  { requests, runtime }: Pick<Checks, 'requests' | 'runtime'>,
  prefix: string,
  ask: (checks: Checks, prefix: string) => Promise<T>,
): Promise<T> {
  for (let run = 1; ; run++) {
    const checks = new Checks(requests, runtime);
    try {
      return await ask(checks, `${prefix}${runtime.writeId()}`);
    } catch (error) {
      if (!(error instanceof StoreUnavailableError) || run === RUNS_MAX) throw error;
    } finally {
      await checks.cleanUp();
    }
    await runtime.sleep(backoffMs(runtime, run));
  }
}

/** What the probe writes, and its judgement of the answers. */
export class Checks {
  readonly report: CheckReport[] = [];
  readonly requests: Requests;
  readonly runtime: Runtime;
  readonly #touched = new Set<string>();
  readonly #versions = new Set<string>();
  versionIds: VersionIds = 'none';

  constructor(requests: Requests, runtime: Runtime) {
    this.requests = requests;
    this.runtime = runtime;
  }

  /** The names of the checks that were passed. */
  get passed(): readonly string[] {
    const passed = this.report.filter(({ verdict }) => verdict === 'passed');
    return [...new Set(passed.map(({ check }) => check))];
  }

  /** A write of the probe with another id than all others, under one condition. Its history is as long as any will be. */
  async draft(key: string, ifMatch: string | null, bodyBytes = 5): Promise<Draft> {
    this.#touched.add(key);
    const stamped = { token: 1n, writeId: this.runtime.writeId() };
    const before = fullHistory(stamped.writeId);
    const content = await seal(Buffer.alloc(bodyBytes, 'probe'), { layout: 'gzip', gzipLevel: 0 });
    stamp(content, 'gzip', stamped);
    return {
      put: {
        key,
        ifMatch,
        stored: { ...stamped, state: 'live', layout: 'gzip', before },
        headers: {},
      },
      content,
    };
  }

  /** @param halfway called when half of the body has been sent; the rest waits for it */
  async put(
    key: string,
    ifMatch: string | null,
    bodyBytes?: number,
    halfway?: () => Promise<unknown>,
  ): Promise<Tried> {
    const { put, content } = await this.draft(key, ifMatch, bodyBytes);
    return this.send(put, content, halfway);
  }

  async send(put: Put, content: Content, halfway?: () => Promise<unknown>): Promise<Tried> {
    const reply = await this.requests.put(put, content, undefined, halfway);
    return { writeId: put.stored.writeId, sent: `PUT ${conditionOf(put)}`, reply };
  }

  /** Has each write put upon the one before, and counts the different ETags. */
  async etagsOf(
    writes: readonly ((ifMatch: string | null) => Promise<Tried>)[],
    form: EtagForm,
    first: string | null = null,
  ): Promise<number> {
    const versions = new Set<string>();
    let ifMatch = first;
    for (const write of writes) {
      const { reply } = await write(ifMatch);
      if (!('versionIds' in reply)) throw 'error' in reply ? reply.error : undefined;
      if (reply.version === undefined) break;
      versions.add(reply.version);
      ifMatch = etagHeader(reply.version, form);
    }
    return versions.size;
  }

  /** Removes what the probe has written. What cannot be removed stays as litter: that says nothing about safety. */
  async cleanUp(): Promise<void> {
    await Promise.allSettled([...this.#touched].map((key) => this.requests.remove(key)));
  }

  /**
   * The condition held, so the write must have been applied and be what is read from now on, under an ETag of its own.
   *
   * @returns its version
   */
  async applied(check: string, key: string, { writeId, sent, reply }: Tried): Promise<string> {
    const { answered } = reply;
    if (reply.meaning === 'unsupported')
      throw this.failed(check, sent, answered, 'conditional writes are not supported', reply);
    if (reply.meaning === 'refused')
      throw this.failed(check, sent, answered, 'a write whose condition held was refused', reply);
    if (!('versionIds' in reply)) throw 'error' in reply ? reply.error : undefined;
    if (reply.version === undefined)
      throw await this.#withoutEtag(check, key, { writeId, sent, reply });
    if (this.#versions.has(reply.version))
      throw this.failed(check, sent, answered, 'two different bodies were given the same ETag');
    this.#versions.add(reply.version);
    this.versionIds = reply.versionIds ?? this.versionIds;
    const stored = await this.requests.head(key);
    if (stored?.writeId !== writeId || stored.version !== reply.version)
      throw this.failed(check, sent, answered, 'what is read is not what was written last');
    this.pass(check, sent, answered);
    return reply.version;
  }

  /** The condition did not hold, so nothing may have changed. */
  async refused(
    check: string,
    key: string,
    { sent, reply }: Tried,
    version: string | null,
  ): Promise<void> {
    const { answered } = reply;
    if (reply.meaning === 'applied')
      throw this.failed(check, sent, answered, 'a write whose condition did not hold was applied');
    if (reply.meaning !== 'refused') throw 'error' in reply ? reply.error : undefined;
    const stored = await this.requests.head(key);
    if ((stored?.version ?? null) !== version)
      throw this.failed(check, sent, answered, 'a write that was refused was applied');
    this.pass(check, sent, answered);
  }

  /**
   * As `refused`, of a large body. A server that refuses it before all of it has come may cut the connection (versitygw), so it
   * is sent until it is answered.
   */
  async late(
    check: string,
    key: string,
    version: string,
    send: () => Promise<Tried>,
  ): Promise<void> {
    let tried = await send();
    for (let sent = 1; tried.reply.meaning === 'ambiguous' && sent < LATE_SENDS_MAX; sent++)
      tried = await send();
    await this.refused(check, key, tried, version);
  }

  /**
   * Several writers at once, under one condition: one must win. Losers may be answered anything (Ceph 16 says 500 to most),
   * but who is told of success must be the one whose write is stored.
   */
  async oneWinner(check: string, key: string, tried: readonly Tried[]): Promise<Stored> {
    const stored = await this.requests.head(key);
    const told = tried.filter(({ reply }) => reply.meaning === 'applied');
    const sent = `${tried.length} × ${tried[0]?.sent} at once`;
    const answered = counted(tried.map(({ reply }) => reply.answered));
    if (told.length > 1 || told.some(({ writeId }) => writeId !== stored?.writeId))
      throw this.failed(
        check,
        sent,
        answered,
        `${told.length} of ${tried.length} writers under one condition were told of success, which is not what is stored`,
      );
    if (stored === null || !tried.some(({ writeId }) => writeId === stored.writeId))
      throw new StoreUnavailableError(
        `none of ${tried.length} writers under one condition had success check=${check}`,
        { cause: tried.map(({ reply }) => reply) },
      );
    this.pass(check, sent, answered);
    return stored;
  }

  /**
   * Two writers under one condition: the second begins and ends while the first has sent half of its body. A server that checks
   * the condition when the headers come, and stores the body when it is there, applies both.
   *
   * @param send sends the first one, and calls back in the middle
   */
  async overtaken(
    check: string,
    key: string,
    ifMatch: string | null,
    send: (halfway: () => Promise<unknown>) => Promise<Tried>,
  ): Promise<{ readonly first: Tried; readonly stored: Stored }> {
    const seconds: Promise<Tried>[] = [];
    let elsewhere = Promise.resolve();
    let isOvertaken = false;
    const first = await send(async () => {
      // Nothing tells when the server has looked at the headers.
      await this.runtime.sleep(OVERTAKEN_AFTER_MS);
      const over = new AbortController();
      const second = this.put(key, ifMatch);
      seconds.push(second);
      elsewhere = this.#elsewhere(key, over.signal);
      // A server that takes writers of one key one by one answers the second only after the first, but writes elsewhere.
      const limitMs = this.requests.sender.timeoutMs / 4;
      const waited = Promise.race([elsewhere, this.runtime.sleep(limitMs)]).then(() => false);
      isOvertaken = await Promise.race([second.then(() => true), waited]);
      over.abort();
    });
    await elsewhere;
    const { reply } = first;
    const tried = [first, ...(await Promise.all(seconds))];
    // The first has failed before half of it was sent.
    if (seconds.length === 0 && 'error' in reply) throw reply.error;
    const stored = await this.oneWinner(check, key, tried);
    // What became of the one that was overtaken is the point.
    if ('error' in reply && reply.meaning !== 'refused') throw reply.error;
    const { peer } = this.requests.sender;
    if (isOvertaken && LOCKLESS_SERVER.test(peer))
      throw this.failed(
        check,
        `2 × ${first.sent} at once`,
        `by ${peer}`,
        'this server (moto) checks a condition and writes without a lock in between: start it without threads',
      );
    return { first, stored };
  }

  /** Takes as long as some small writes do. */
  async #elsewhere(key: string, over: AbortSignal): Promise<void> {
    for (let i = 0; i < WRITES_ELSEWHERE && !over.aborted; i++)
      await this.put(`${key}-elsewhere`, null);
  }

  async #withoutEtag(check: string, key: string, { writeId, sent }: Tried): Promise<Error> {
    const stored = await this.requests.head(key);
    return stored?.writeId === writeId
      ? this.failed(check, sent, '200 without an ETag', 'a write was answered without an ETag')
      : new StoreSetupError(
          'the endpoint does not answer like S3: a PUT was answered without an ETag',
        );
  }

  pass(check: string, sent: string, answered: string): void {
    this.report.push({ check, sent, answered, verdict: 'passed' });
  }

  /** Notes a faculty that the server lacks and that can be done without. */
  absent(check: string, sent: string, answered: string): void {
    this.report.push({ check, sent, answered, verdict: 'absent' });
  }

  failed(
    check: string,
    sent: string,
    answered: string,
    reason: string,
    reply?: { readonly error?: FencedStoreError },
  ): UnsafeStoreError {
    this.report.push({ check, sent, answered, verdict: 'failed' });
    return new UnsafeStoreError(
      check,
      `the store does not enforce conditional writes, so no write was sent to it: ${reason} check=${check}`,
      { cause: reply?.error, report: this.report },
    );
  }
}

export function conditionOf({ ifMatch }: Put): string {
  return ifMatch === null ? 'If-None-Match: *' : `If-Match: ${ifMatch}`;
}

/** `1 × 200, 7 × 412 PreconditionFailed` */
function counted(answers: readonly string[]): string {
  const kinds = [...new Set(answers)].toSorted();
  return kinds
    .map((kind) => `${answers.filter((answer) => answer === kind).length} × ${kind}`)
    .join(', ');
}
