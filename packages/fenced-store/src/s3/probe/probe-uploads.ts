import { type EtagForm, etagHeader } from '../../core/capabilities.js';
import { FencedStoreError, StoreUnavailableError, UnsafeStoreError } from '../../core/errors.js';
import type { Put } from '../http/put.js';
import type { Part, Upload, Uploads } from '../http/uploads.js';
import { type Checks, conditionOf, type Draft, type Tried } from './checks.js';

const WRITERS = 8;
const RUNS_MAX = 3;
/** The least that S3 takes for a part that is not the last. */
const PART_BYTES = 5 * 2 ** 20;
/** AWS copies ranges only of what is larger than a part. */
const COPIED_BODY_BYTES = PART_BYTES + 2 ** 17;

/**
 * Whether a multipart upload is completed only under its condition. Ceph 16 and Garage ignore it there, moto 5 ignores
 * `If-Match`. Such a server is still good for writes in one PUT.
 */
export async function probeUploads(
  checks: Checks,
  uploads: Uploads,
  prefix: string,
  form: EtagForm,
): Promise<boolean> {
  const prober = new UploadsProbe(checks, uploads, form);
  for (let run = 1; ; run++) {
    try {
      await prober.conditions(`${prefix}-${run}/conditions`);
      await prober.races(`${prefix}-${run}/race`);
      return true;
    } catch (error) {
      if (!(error instanceof FencedStoreError)) throw error;
      // A reply was lost, perhaps; or this server always answers so.
      if (error instanceof StoreUnavailableError && run < RUNS_MAX) continue;
      noteAbsence(checks, error);
      return false;
    }
  }
}

/** Uploads are not needed by every write, so what fails here is a faculty that the server lacks. */
function noteAbsence(checks: Checks, error: FencedStoreError): void {
  const failed = checks.report.at(-1);
  if (error instanceof UnsafeStoreError && failed?.verdict === 'failed') {
    checks.report.pop();
    checks.absent(failed.check, failed.sent, failed.answered);
  } else checks.absent('complete', 'multipart upload', error.message);
}

/**
 * Whether uploads of several parts, which a server must put together, are completed only under their condition, too.
 *
 * @throws {UnsafeStoreError} where they are not.
 */
export async function checkParts(
  checks: Checks,
  uploads: Uploads,
  key: string,
  form: EtagForm,
): Promise<void> {
  await new UploadsProbe(checks, uploads, form).parts(key);
}

/**
 * Whether parts that the server copies are the stretches of the object that were asked for, and such uploads are completed only
 * under their condition, too.
 *
 * @throws {UnsafeStoreError} where they are not.
 */
export async function checkCopies(
  checks: Checks,
  uploads: Uploads,
  key: string,
  form: EtagForm,
): Promise<void> {
  await new UploadsProbe(checks, uploads, form).copies(key);
}

/** Uploads the same bytes with the same metadata twice, as parts or as a copy of most of them, and counts the different ETags. */
export async function etagsOfUploads(
  checks: Checks,
  uploads: Uploads,
  path: 'upload' | 'copy',
  key: string,
  form: EtagForm,
): Promise<number> {
  return new UploadsProbe(checks, uploads, form).etags(path, key);
}

/** An upload that waits for its Complete. */
interface Ready {
  readonly put: Put;
  readonly upload: Upload;
  readonly parts: readonly Part[];
}

class UploadsProbe {
  readonly #checks: Checks;
  readonly #uploads: Uploads;
  readonly #form: EtagForm;

  constructor(checks: Checks, uploads: Uploads, form: EtagForm) {
    this.#checks = checks;
    this.#uploads = uploads;
    this.#form = form;
  }

  async conditions(key: string): Promise<void> {
    const checks = this.#checks;
    const ifMatch = (version: string): string => etagHeader(version, this.#form);
    const first = await checks.applied('complete-create', key, await this.#write(key, null));
    await checks.refused('complete-create-again', key, await this.#write(key, null), first);
    const updated = await this.#write(key, ifMatch(first));
    const version = await checks.applied('complete-update', key, updated);
    const late = await this.#write(key, ifMatch(first));
    await checks.refused('complete-update-with-old-etag', key, late, version);
    const absent = `${key}-absent`;
    const ofNothing = await this.#write(absent, ifMatch(first));
    await checks.refused('complete-update-of-nothing', absent, ofNothing, null);
  }

  /** All parts are there before any is completed. */
  async races(key: string): Promise<void> {
    let ifMatch: string | null = null;
    for (const check of ['complete-race-of-creates', 'complete-race-of-updates']) {
      const condition = ifMatch;
      const ready = await Promise.all(
        Array.from({ length: WRITERS }, () => this.#prepare(key, condition)),
      );
      const tried = await Promise.all(ready.map((upload) => this.#complete(upload)));
      await Promise.all(ready.map(({ upload }) => this.#uploads.abort(upload)));
      const winner = await this.#checks.oneWinner(check, key, tried);
      ifMatch = etagHeader(winner.version, this.#form);
    }
  }

  /**
   * Two uploads whose conditions do not hold, then the same two at once under one that holds. A server that checks the condition
   * before it puts the parts together completes both.
   */
  async parts(key: string): Promise<void> {
    const checks = this.#checks;
    const ifMatch = (version: string): string => etagHeader(version, this.#form);
    const created = await checks.put(key, null);
    const first = await checks.applied('parts-create', key, created);
    const updated = await checks.put(key, ifMatch(first));
    const version = await checks.applied('parts-update', key, updated);
    const ready: Ready[] = [];
    try {
      for (const _ of Array(2)) ready.push(await this.#prepare(key, null, PART_BYTES + 1));
      const [one] = ready as [Ready];
      // The one upload twice: a server may forget it as it refuses to complete it.
      const old = await this.#complete(one, ifMatch(first));
      await checks.refused('parts-update-with-old-etag', key, old, version);
      const again = await this.#complete(one, null);
      await checks.refused('parts-create-again', key, again, version);
      const tried = await Promise.all(ready.map((each) => this.#complete(each, ifMatch(version))));
      await checks.oneWinner('parts-race-of-updates', key, tried);
    } finally {
      await Promise.all(ready.map(({ upload }) => this.#uploads.abort(upload)));
    }
  }

  /** An object is written upon itself: its first part is sent, and the rest is copied. */
  async copies(key: string): Promise<void> {
    const checks = this.#checks;
    const sent = await checks.put(key, null, COPIED_BODY_BYTES);
    const ifMatch = etagHeader(await checks.applied('copy-source', key, sent), this.#form);
    const { put, content } = await checks.draft(key, ifMatch, COPIED_BODY_BYTES);
    const upload = await this.#uploads.create(put);
    const all = await this.#uploads.create(put);
    try {
      const first = await this.#uploads.part(upload, 1, content.subarray(0, PART_BYTES));
      const rest = { start: PART_BYTES, length: content.length - PART_BYTES };
      const parts = [first, await this.#uploads.part(upload, 2, rest)];
      const whole = await this.#uploads.part(all, 1, { start: 0, length: content.length });
      const again = await this.#complete({ put, upload: all, parts: [whole] }, null);
      const source = await checks.requests.head(key);
      await checks.refused('copy-create-again', key, again, source?.version ?? null);
      await checks.applied('copy-update', key, await this.#complete({ put, upload, parts }));
      const object = await checks.requests.get(key);
      const [check, asked] = ['copied-parts', 'UploadPartCopy of a range'];
      if (Buffer.compare(object?.bytes ?? Buffer.alloc(0), content) !== 0)
        throw checks.failed(
          check,
          asked,
          'other bytes',
          'what was copied is not what was asked for',
        );
      checks.pass(check, asked, 'that range');
    } finally {
      await Promise.all([upload, all].map((one) => this.#uploads.abort(one)));
    }
  }

  /** Both are there before any is completed, as a clock might tell them apart. */
  async etags(path: 'upload' | 'copy', key: string): Promise<number> {
    const checks = this.#checks;
    const draft = await checks.draft(key, null, COPIED_BODY_BYTES);
    const { reply } = await checks.send(draft.put, draft.content);
    if (!('versionIds' in reply) || reply.version === undefined)
      throw 'error' in reply ? reply.error : undefined;
    const ready: Ready[] = [];
    try {
      for (const _ of Array(2)) ready.push(await this.#prepared(draft, path === 'copy'));
      const writes = ready.map((one) => (ifMatch: string | null) => this.#complete(one, ifMatch));
      return await checks.etagsOf(writes, this.#form, etagHeader(reply.version, this.#form));
    } finally {
      await Promise.all(ready.map(({ upload }) => this.#uploads.abort(upload)));
    }
  }

  async #write(key: string, ifMatch: string | null): Promise<Tried> {
    const ready = await this.#prepare(key, ifMatch);
    const tried = await this.#complete(ready);
    await this.#uploads.abort(ready.upload);
    return tried;
  }

  async #prepare(key: string, ifMatch: string | null, bodyBytes?: number): Promise<Ready> {
    return this.#prepared(await this.#checks.draft(key, ifMatch, bodyBytes));
  }

  /** @param copies whether all but the first part are copied from the object */
  async #prepared({ put, content }: Draft, copies = false): Promise<Ready> {
    const upload = await this.#uploads.create(put);
    try {
      const parts: Part[] = [];
      for (let start = 0; start < content.length; start += PART_BYTES) {
        const bytes = content.subarray(start, start + PART_BYTES);
        const part = copies && start > 0 ? { start, length: bytes.length } : bytes;
        parts.push(await this.#uploads.part(upload, parts.length + 1, part));
      }
      return { put, upload, parts };
    } catch (error) {
      await this.#uploads.abort(upload);
      throw error;
    }
  }

  async #complete(
    { put, upload, parts }: Ready,
    ifMatch: string | null = put.ifMatch,
  ): Promise<Tried> {
    const sent = { ...put, ifMatch };
    const reply = await this.#uploads.complete(sent, upload, parts, 0);
    return { writeId: put.stored.writeId, sent: `Complete ${conditionOf(sent)}`, reply };
  }
}
