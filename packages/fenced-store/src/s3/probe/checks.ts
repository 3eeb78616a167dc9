import { PutObjectCommand } from '@aws-sdk/client-s3';
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
import { fullHistory } from '../../core/stored.js';
import { encode, writeStamp } from '../codec/encode.js';
import type { Content, Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import type { Uploads } from '../http/uploads.js';
import { backoffMs, type Runtime } from '../runtime.js';

/** Number of runs of checks, which begin anew if a reply was lost. */
const RUNS_MAX = 3;
/** Number of times that `late` sends a write at most, until a reply comes. */
const LATE_SENDS_MAX = 3;
/** Number of times that a step is sent to a server that throttles. */
const THROTTLED_SENDS_MAX = 5;
/** Cloudflare R2 takes one write of a key each second, and answers 429 to others. */
export const PACE_MS = 1_050;

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
type Upon = 'first' | null;

/** One check of conditions: its name, the condition, and the reply that is expected. */
export type Step = readonly [check: string, upon: Upon, expected: 'applied' | 'refused'];

/** The first version of a key, and its current one. */
export interface Versions {
  readonly first: string;
  readonly current: string;
}

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
  readonly #wroteAtMs = new Map<string, number>();
  /** True if the server has throttled a write. From then on, each key is written once a second. */
  isPaced = false;
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

  /** A step that the server throttles is sent again. A race is not: it is run again as a whole. */
  async send(put: Put, content: Content, halfway?: () => Promise<unknown>): Promise<Tried> {
    const { writeId } = put.stored;
    for (let sends = 1; ; sends++) {
      if (!halfway) await this.pace(put.key);
      const reply = await this.probed.requests.put(put, content, { halfway });
      this.#wroteAtMs.set(put.key, this.probed.runtime.nowMs());
      const tried = { writeId, sent: `PUT ${conditionOf(put)}`, reply };
      if (reply.meaning === 'throttled') this.isPaced = true;
      if (reply.meaning !== 'throttled' || halfway || sends === THROTTLED_SENDS_MAX) return tried;
    }
  }

  /** Waits until a server that throttles may take the next write of a key. */
  async pace(key: string): Promise<void> {
    if (!this.isPaced) return;
    const { runtime } = this.probed;
    const passedMs = runtime.nowMs() - (this.#wroteAtMs.get(key) ?? Number.NEGATIVE_INFINITY);
    if (passedMs < PACE_MS) await runtime.sleep(PACE_MS - passedMs);
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
    const [last] = steps.at(-1) ?? [];
    for (const [check, upon, expected] of steps) {
      const tried = await send(upon && this.ifMatch(first));
      if (expected === 'refused')
        await this.refused(check, key, tried, current || null, { isRead: check === last });
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
    run: (check: string, base: string | null) => Promise<string>,
  ): Promise<void> {
    const version = await run(`${prefix}create`, null);
    await run(`${prefix}update`, version);
  }

  /**
   * Checks a write whose condition held: it must be applied, and be read from now on, under an
   * ETag of its own.
   *
   * @returns its version
   */
  async applied(check: string, key: string, tried: Tried): Promise<string> {
    const { writeId, reply } = tried;
    if (reply.meaning === 'unsupported' || reply.meaning === 'rejected')
      await this.#blameRequest(key, reply.error);
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

  /**
   * Finds out whether the server refuses a write because of its condition, or any write of this
   * client. Since 2025 the SDK sends checksums, which some servers refuse.
   *
   * @throws {StoreSetupError} if it refuses a write without a condition, too.
   */
  async #blameRequest(key: string, cause: FencedStoreError): Promise<void> {
    const { requests } = this.probed;
    const input = { ...requests.at(key), ...requests.encryption, Body: 'probe' };
    const command = () => new PutObjectCommand(input);
    const reply = await requests.sender.once({ operation: 'put', key, command });
    if (reply.ok || (reply.meaning !== 'unsupported' && reply.meaning !== 'rejected')) return;
    throw new StoreSetupError(
      `the server refuses a write without a condition, too: if it does not know the checksums of the AWS SDK, give the S3Client requestChecksumCalculation: 'WHEN_REQUIRED' and responseChecksumValidation: 'WHEN_REQUIRED'; see docs/s3-servers.md (${cause.message})`,
      { cause },
    );
  }

  /**
   * Checks a write whose condition did not hold: nothing may have changed.
   *
   * @param options with `isCut`, it needs no reply. Without `isRead`, a later step reads the object
   */
  async refused(
    check: string,
    key: string,
    tried: Tried,
    version: string | null,
    { isCut = false, isRead = true }: { isCut?: boolean; isRead?: boolean } = {},
  ): Promise<void> {
    const { reply } = tried;
    if (reply.meaning === 'applied')
      throw this.failed(check, tried, 'a write whose condition did not hold was applied');
    if (reply.meaning !== 'refused' && !isCut) throw errorOf(reply);
    const stored = isRead ? await this.probed.requests.stamp(key) : { version };
    if ((stored?.version ?? null) !== version)
      throw this.failed(check, tried, 'a write that was refused was applied');
    this.note('passed', check, tried);
  }

  /**
   * Checks a large write whose condition does not hold. A server that refuses it early may cut the
   * connection before the body has ended (MinIO, versitygw), and the client then sees no answer. If
   * that happens each time, and the object is as before, the write counts as refused. A server
   * cannot apply a body that it has not received. One cut alone may be the line's.
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
    await this.refused(check, key, tried, version, { isCut: isCut(tried.reply) });
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

/** True if the connection ended, or was too slow, before there was an answer. */
export function isCut({ meaning, answered }: WriteReply): boolean {
  return meaning === 'ambiguous' && answered.startsWith('no reply');
}

/** The error of a write that was not applied. */
export function errorOf(reply: WriteReply): unknown {
  return 'error' in reply ? reply.error : undefined;
}

export function conditionOf({ ifMatch }: Put): string {
  return ifMatch === null ? 'If-None-Match: *' : `If-Match: ${ifMatch}`;
}

/** `1 × 200, 7 × 412 PreconditionFailed` */
export function counted(answers: readonly string[]): string {
  const kinds = [...new Set(answers)].toSorted();
  return kinds
    .map((kind) => `${answers.filter((answer) => answer === kind).length} × ${kind}`)
    .join(', ');
}
