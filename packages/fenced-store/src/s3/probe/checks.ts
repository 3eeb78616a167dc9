import {
  type EtagForm,
  etagHeader,
  type VersionIds,
  type WriteEncryption,
} from '../../core/capabilities.js';
import {
  type CheckReport,
  type FencedStoreError,
  StoreSetupError,
  StoreUnavailableError,
  UnsafeStoreError,
} from '../../core/errors.js';
import { fullHistory, type Stored } from '../../core/stored.js';
import { encode, writeStamp } from '../codec/encode.js';
import type { Content, Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import type { Uploads } from '../http/uploads.js';
import { backoffMs, type Runtime } from '../runtime.js';

/**
 * Moto 5 with threads checks a condition, and writes some 0.1 ms later without a lock. Under load
 * it loses an acknowledged write, but hardly ever in a race that a probe can afford. So it is
 * recognised by its web server.
 */
const LOCKLESS_SERVER = /Werkzeug\//;
/** Number of runs of checks, which begin anew if a reply was lost. */
const RUNS_MAX = 3;
/** Number of times that `late` sends a write at most, until a reply comes. */
const LATE_SENDS_MAX = 6;
/** If so many later writes of another key are answered first, a write counts as queued. */
const WRITES_ELSEWHERE = 8;
/** Milliseconds from the first half of a body to the write that overtakes it. */
const OVERTAKEN_AFTER_MS = 100;

/** A write of the probe, and the reply to it. */
export interface Tried {
  readonly writeId: string;
  readonly sent: string;
  readonly reply: WriteReply;
}

/** A write that is ready to be sent. */
export interface ProbeWrite {
  readonly put: Put;
  readonly content: Uint8Array;
}

/** Sends one write under a condition. */
export type SendUnder = (ifMatch: string | null) => Promise<Tried>;

/** The version that the condition of a step names; null for none. */
type Upon = 'first' | 'current' | 'wrong' | null;

/** One check of conditions: its name, the condition, and the reply that is expected. */
export type Step = readonly [check: string, upon: Upon, expected: 'applied' | 'refused'];

/** The versions that a key had. */
export interface Versions {
  readonly first: string;
  readonly current: string;
}

const WRONG_ETAG: string = '0'.repeat(32);

/** The server and the place of a probe. */
export interface Probed {
  readonly requests: Requests;
  readonly uploads: Uploads;
  readonly runtime: Runtime;
  /** The beginning of all keys of the probe. */
  readonly prefix: string;
}

/**
 * Runs checks under new keys, and removes what they have written. If a reply was lost, a run proves
 * nothing, and the next one uses other keys.
 *
 * @throws {StoreUnavailableError} if each run lost a reply.
 */
export async function inRuns<T>(
  probed: Probed,
  etagForm: EtagForm,
  run: (checks: Checks, prefix: string) => Promise<T>,
): Promise<T> {
  const { prefix, runtime } = probed;
  for (let count = 1; ; count++) {
    const checks = new Checks(probed, etagForm);
    try {
      return await run(checks, `${prefix}${runtime.writeId()}`);
    } catch (error) {
      if (!(error instanceof StoreUnavailableError) || count === RUNS_MAX) throw error;
    } finally {
      await checks.cleanUp();
    }
    await runtime.sleep(backoffMs(runtime, count));
  }
}

/** The writes of a probe, and the checks of their replies. */
export class Checks {
  readonly report: CheckReport[] = [];
  readonly probed: Probed;
  readonly #touched = new Set<string>();
  readonly #versions = new Set<string>();
  versionIds: VersionIds = 'none';
  /** The encryption of the latest write. */
  encryption: WriteEncryption | undefined;
  /** The form in which the server takes ETags, as far as that is known. */
  etagForm: EtagForm;

  constructor(probed: Probed, etagForm: EtagForm) {
    this.probed = probed;
    this.etagForm = etagForm;
  }

  /** A version as a condition. */
  ifMatch(version: string): string {
    return etagHeader(version, this.etagForm);
  }

  /** The names of the checks that were passed. */
  get passed(): readonly string[] {
    const passed = this.report.filter(({ verdict }) => verdict === 'passed');
    return [...new Set(passed.map(({ check }) => check))];
  }

  /** A write with an id of its own. It has the longest history, so its metadata are the largest. */
  async newWrite(key: string, ifMatch: string | null, bodyBytes = 5): Promise<ProbeWrite> {
    this.#touched.add(key);
    const writeId = this.probed.runtime.writeId();
    const before = fullHistory(writeId);
    const stored = { token: 1n, writeId, state: 'live', layout: 'gzip', before } as const;
    const body = Buffer.alloc(bodyBytes, 'probe');
    const content = await encode(body, { layout: 'gzip', gzipLevel: 0 });
    writeStamp(content, stored);
    return { put: { key, ifMatch, stored, headers: {} }, content };
  }

  /** @param halfway called when half of the body has been sent; the rest waits for it */
  async put(
    key: string,
    ifMatch: string | null,
    bodyBytes?: number,
    halfway?: () => Promise<unknown>,
  ): Promise<Tried> {
    const { put, content } = await this.newWrite(key, ifMatch, bodyBytes);
    return this.send(put, content, halfway);
  }

  async send(put: Put, content: Content, halfway?: () => Promise<unknown>): Promise<Tried> {
    const reply = await this.probed.requests.put(put, content, { halfway });
    return { writeId: put.stored.writeId, sent: `PUT ${conditionOf(put)}`, reply };
  }

  /** Removes the objects of the probe. If one cannot be removed, it stays as litter. */
  async cleanUp(): Promise<void> {
    await Promise.allSettled([...this.#touched].map((key) => this.probed.requests.remove(key)));
  }

  /** Runs the steps in order. Each write is sent under the condition of its step. */
  async conditions(
    steps: readonly Step[],
    key: string,
    send: SendUnder,
    versions?: Versions,
  ): Promise<Versions> {
    let { first = '', current = '' } = versions ?? {};
    for (const [check, upon, expected] of steps) {
      const named = { first, current, wrong: WRONG_ETAG };
      const tried = await send(upon && this.ifMatch(named[upon]));
      if (expected === 'refused') await this.refused(check, key, tried, current || null);
      else {
        current = await this.applied(check, key, tried);
        first ||= current;
      }
    }
    return { first, current };
  }

  /** Runs a check on a key without an object, then on the version that it returned. */
  async createThenUpdate(
    prefix: string,
    suffix: string,
    run: (check: string, ifMatch: string | null) => Promise<string>,
  ): Promise<void> {
    const version = await run(`${prefix}create${suffix}`, null);
    await run(`${prefix}update${suffix}`, this.ifMatch(version));
  }

  /**
   * Checks a write whose condition held: it must be applied, and be read from now on, under an
   * ETag of its own.
   *
   * @returns its version
   */
  async applied(check: string, key: string, tried: Tried): Promise<string> {
    const { writeId, reply } = tried;
    if (reply.meaning === 'unsupported')
      throw this.failed(check, tried, 'conditional writes are not supported', reply);
    if (reply.meaning === 'refused') {
      // A proxy that sends a write twice passes on the second reply.
      if ((await this.probed.requests.stamp(key))?.writeId === writeId)
        throw new StoreUnavailableError(`a write was refused and applied check=${check}`, {
          cause: errorOf(reply),
        });
      throw this.failed(check, tried, 'a write whose condition held was refused', reply);
    }
    if (!('versionIds' in reply)) throw errorOf(reply);
    const { version, versionIds } = reply;
    const stored = await this.probed.requests.stamp(key);
    if (version === undefined) {
      if (stored?.writeId !== writeId)
        throw new StoreSetupError(
          'the endpoint does not answer like S3: a PUT was answered without an ETag',
        );
      const answered = { ...tried, answered: '200 without an ETag' };
      throw this.failed(check, answered, 'a write was answered without an ETag');
    }
    if (this.#versions.has(version))
      throw this.failed(check, tried, 'two different bodies were given the same ETag');
    this.#versions.add(version);
    this.versionIds = versionIds ?? this.versionIds;
    if (stored?.writeId !== writeId || stored.version !== version)
      throw this.failed(check, tried, 'what is read is not what was written last');
    this.note('passed', check, tried);
    return version;
  }

  /** Checks a write whose condition did not hold: nothing may have changed. */
  async refused(check: string, key: string, tried: Tried, version: string | null): Promise<void> {
    const { reply } = tried;
    if (reply.meaning === 'applied')
      throw this.failed(check, tried, 'a write whose condition did not hold was applied');
    if (reply.meaning !== 'refused') throw errorOf(reply);
    const stored = await this.probed.requests.stamp(key);
    if ((stored?.version ?? null) !== version)
      throw this.failed(check, tried, 'a write that was refused was applied');
    this.note('passed', check, tried);
  }

  /**
   * Checks a large write whose condition does not hold. A server that refuses it early may cut the
   * connection (versitygw), so it is sent until it is answered.
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
   * Checks writers that ran at once under one condition: one must win. Losers may be answered
   * anything (Ceph 16 answers 500 to most), but a success must be the write that is stored.
   */
  async oneWinner(check: string, key: string, tried: readonly Tried[]): Promise<Stored> {
    const stored = await this.probed.requests.stamp(key);
    const winners = tried.filter(({ reply }) => reply.meaning === 'applied');
    const sent = `${tried.length} × ${tried[0]?.sent} at once`;
    const race = { sent, answered: counted(tried.map(({ reply }) => reply.answered)) };
    if (winners.length > 1 || winners.some(({ writeId }) => writeId !== stored?.writeId))
      throw this.failed(
        check,
        race,
        `${winners.length} of ${tried.length} writers under one condition were answered with success, which is not what is stored`,
      );
    if (stored === null || !tried.some(({ writeId }) => writeId === stored.writeId))
      throw new StoreUnavailableError(
        `none of ${tried.length} writers under one condition had success check=${check}`,
        { cause: tried.map(({ reply }) => reply) },
      );
    this.note('passed', check, race);
    return stored;
  }

  /**
   * Checks two writers under one condition: the second begins and ends while the first has sent
   * half of its body. A server that checks the condition when the headers come, and stores the body
   * when it is there, applies both.
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
      // Waits until the server has read the headers, which no reply shows.
      await this.probed.runtime.sleep(OVERTAKEN_AFTER_MS);
      const over = new AbortController();
      const second = this.put(key, ifMatch);
      seconds.push(second);
      elsewhere = this.#writeElsewhere(key, over.signal);
      // A server that takes the writers of one key in turn answers the second only after the
      // first. It is recognised by its answers to writes of another key before that.
      const limitMs = this.probed.requests.sender.timeoutMs / 4;
      const waited = Promise.race([elsewhere, this.probed.runtime.sleep(limitMs)]).then(
        () => false,
      );
      isOvertaken = await Promise.race([second.then(() => true), waited]);
      over.abort();
    });
    await elsewhere;
    const { reply } = first;
    const tried = [first, ...(await Promise.all(seconds))];
    // The first write failed before half of it was sent, so no second write began.
    if (seconds.length === 0 && 'error' in reply) throw reply.error;
    const stored = await this.oneWinner(check, key, tried);
    // The outcome of the overtaken write must be known.
    if ('error' in reply && reply.meaning !== 'refused') throw reply.error;
    const { peer } = this.probed.requests.sender;
    if (isOvertaken && LOCKLESS_SERVER.test(peer))
      throw this.failed(
        check,
        { sent: `2 × ${first.sent} at once`, answered: `by ${peer}` },
        'this server (moto) checks a condition and writes without a lock in between: start it without threads',
      );
    return { first, stored };
  }

  /** Ends when some small writes of another key were answered. */
  async #writeElsewhere(key: string, over: AbortSignal): Promise<void> {
    for (let i = 0; i < WRITES_ELSEWHERE && !over.aborted; i++)
      await this.put(`${key}-elsewhere`, null);
  }

  /** Sends each write upon the one before, and counts the different ETags. */
  async countEtags(sends: readonly SendUnder[], first: string | null = null): Promise<number> {
    const versions = new Set<string>();
    let ifMatch = first;
    for (const send of sends) {
      const { reply } = await send(ifMatch);
      if (!('versionIds' in reply)) throw errorOf(reply);
      if (reply.version === undefined) break;
      versions.add(reply.version);
      this.encryption = reply.encryption;
      ifMatch = this.ifMatch(reply.version);
    }
    return versions.size;
  }

  /** A `SendUnder` that sends this write. */
  sending({ put, content }: ProbeWrite): SendUnder {
    return (ifMatch) => this.send({ ...put, ifMatch }, content);
  }

  failed(
    check: string,
    asked: Asked,
    reason: string,
    reply?: { readonly error?: FencedStoreError },
  ): UnsafeStoreError {
    this.note('failed', check, asked);
    return new UnsafeStoreError(
      check,
      `the store does not enforce conditional writes, so no write was sent to it: ${reason} check=${check}`,
      { cause: reply?.error, report: this.report },
    );
  }

  note(verdict: CheckReport['verdict'], check: string, asked: Asked): void {
    const { sent, answered = asked.reply?.answered ?? '' } = asked;
    this.report.push({ check, sent, answered, verdict });
  }
}

/** A question to the server, and its answer, in words; or a write. */
interface Asked {
  readonly sent: string;
  readonly answered?: string;
  readonly reply?: WriteReply;
}

/** The error of a write that was not applied. */
export function errorOf(reply: WriteReply): unknown {
  return 'error' in reply ? reply.error : undefined;
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
