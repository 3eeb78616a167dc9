import { FencedStoreError, StoreUnavailableError, UnsafeStoreError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import type { Put } from '../http/put.js';
import type { Upload, UploadedPart, Uploads } from '../http/uploads.js';
import {
  type Checks,
  conditionOf,
  errorOf,
  type ProbeWrite,
  type Step,
  type Tried,
} from './checks.js';
import { type Halfway, Races, type SendRacer } from './races.js';

const WRITERS = 8;
const RUNS_MAX = 3;
/** The smallest part that S3 takes, except for the last. */
const PART_BYTES = 5 * 2 ** 20;
/** AWS copies ranges only of objects that are larger than a part. */
const COPIED_BODY_BYTES = PART_BYTES + 2 ** 17;

const PARTS_BASE: readonly Step[] = [
  ['parts-create', null, 'applied'],
  ['parts-update', 'first', 'applied'],
];
const PARTS: readonly Step[] = [
  ['parts-update-with-old-etag', 'first', 'refused'],
  ['parts-create-again', null, 'refused'],
];

/** An upload that waits for its Complete. */
interface PreparedUpload {
  readonly put: Put;
  readonly upload: Upload;
  readonly parts: readonly UploadedPart[];
}

/** The checks of multipart uploads. */
export class UploadsProbe {
  readonly #checks: Checks;
  readonly #uploads: Uploads;
  readonly #races: Races;

  constructor(checks: Checks) {
    this.#races = new Races(checks);
    this.#checks = checks;
    this.#uploads = checks.probed.uploads;
  }

  /**
   * Returns whether an upload is completed only under its condition. Ceph 16 and Garage ignore the
   * condition, and moto 5 ignores `If-Match`. Such a server is still good for writes in one PUT.
   */
  async enforcesConditions(prefix: string): Promise<boolean> {
    for (let run = 1; ; run++) {
      try {
        await this.conditions(`${prefix}-${run}`);
        return true;
      } catch (error) {
        if (!(error instanceof FencedStoreError)) throw error;
        // Perhaps a reply was lost; or this server always answers so.
        if (error instanceof StoreUnavailableError && run < RUNS_MAX) continue;
        this.#noteAbsence(error);
        return false;
      }
    }
  }

  /** Only some writes need uploads, so a failure here is a capability that the server lacks. */
  #noteAbsence(error: FencedStoreError): void {
    const { report } = this.#checks;
    const failed = report.at(-1);
    if (error instanceof UnsafeStoreError && failed?.verdict === 'failed') {
      report.pop();
      this.#checks.note('absent', failed.check, failed);
    } else
      this.#checks.note('absent', 'complete', {
        sent: 'multipart upload',
        answered: error.message,
      });
  }

  /**
   * Checks uploads of one small part.
   *
   * The losers of a race are completed again upon the version of its winner. So each race costs few
   * requests, and there are many. SeaweedFS 4.48 checks the condition without a lock, but two
   * writers win in less than half of the races.
   *
   * @throws {UnsafeStoreError}
   */
  async conditions(key: string): Promise<void> {
    const checks = this.#checks;
    let racers = await this.#prepareAll(key);
    try {
      const first = await this.#race('complete-race-of-creates', key, null, racers);
      const again = await this.#completeNew(key, null);
      await checks.refused('complete-create-again', key, again, first.version);
      let current = first;
      const loses = ({ put }: PreparedUpload) => put.stored.writeId !== current.writeId;
      for (let losers = racers.filter(loses); losers.length > 1; losers = losers.filter(loses)) {
        const race = this.#race('complete-race-of-updates', key, current, losers);
        const next = await race.catch((error: unknown) => {
          if (error instanceof StoreUnavailableError) return null;
          throw error;
        });
        if (next === null) break;
        current = next;
      }
      if (current === first) {
        // The server forgets an upload that it refuses, or refuses it for ever (AWS: 409).
        await this.#abort(racers);
        racers = await this.#prepareAll(key);
        current = await this.#race('complete-race-of-updates', key, first, racers);
      }
      const old = await this.#completeNew(key, checks.ifMatch(first.version));
      await checks.refused('complete-update-with-old-etag', key, old, current.version);
      const absent = `${key}-absent`;
      const updateOfNothing = await this.#completeNew(absent, checks.ifMatch(first.version));
      await checks.refused('complete-update-of-nothing', absent, updateOfNothing, null);
    } finally {
      await this.#abort(racers);
    }
  }

  /** Completes uploads at the same moment, and returns what is stored then. */
  async #race(
    check: string,
    key: string,
    base: Stored | null,
    uploads: readonly PreparedUpload[],
  ): Promise<Stored> {
    const ifMatch = base && this.#checks.ifMatch(base.version);
    const racers = uploads.map(
      (upload): SendRacer =>
        (halfway) =>
          this.#complete(upload, ifMatch, halfway),
    );
    const race = { check, key, base: base?.version ?? null, racers };
    return this.#races.oneWinner(race, await this.#races.run(race));
  }

  #prepareAll(key: string): Promise<readonly PreparedUpload[]> {
    const prepared = async () => this.#prepare(await this.#checks.newWrite(key, null));
    return Promise.all(Array.from({ length: WRITERS }, prepared));
  }

  async #completeNew(key: string, ifMatch: string | null): Promise<Tried> {
    const prepared = await this.#prepare(await this.#checks.newWrite(key, ifMatch));
    const tried = await this.#complete(prepared);
    await this.#uploads.abort(prepared.upload);
    return tried;
  }

  /**
   * Checks uploads of several parts, which a server must put together. Two uploads are completed
   * under conditions that do not hold, then both at once under one that holds. A server that checks
   * the condition before it puts the parts together completes both.
   *
   * @throws {UnsafeStoreError}
   */
  async parts(key: string): Promise<void> {
    const checks = this.#checks;
    const put = (ifMatch: string | null) => checks.put(key, ifMatch);
    const versions = await checks.conditions(PARTS_BASE, key, put);
    const prepared: PreparedUpload[] = [];
    try {
      for (const _ of Array(2))
        prepared.push(await this.#prepare(await checks.newWrite(key, null, PART_BYTES + 1)));
      // One upload twice: a server may forget it when it refuses to complete it.
      const [one] = prepared as [PreparedUpload];
      const complete = (ifMatch: string | null) => this.#complete(one, ifMatch);
      await checks.conditions(PARTS, key, complete, versions);
      const stored = await checks.probed.requests.stamp(key);
      await this.#race('parts-race-of-updates', key, stored, prepared);
    } finally {
      await this.#abort(prepared);
    }
  }

  /**
   * Checks copied parts: an object is written upon itself. Its first part is sent, and the server
   * copies the rest, which must be the range that was asked for.
   *
   * @throws {UnsafeStoreError}
   */
  async copies(key: string): Promise<void> {
    const checks = this.#checks;
    const sent = await checks.put(key, null, COPIED_BODY_BYTES);
    const version = await checks.applied('copy-source', key, sent);
    const ifMatch = checks.ifMatch(version);
    const write = await checks.newWrite(key, ifMatch, COPIED_BODY_BYTES);
    const { put, content } = write;
    const prepared: PreparedUpload[] = [];
    try {
      const upload = await this.#uploads.create(put);
      prepared.push({ put, upload, parts: [] });
      const range = { start: 0, length: content.length };
      const whole = { put, upload, parts: [await this.#uploads.part(upload, 1, range)] };
      await checks.refused('copy-create-again', key, await this.#complete(whole, null), version);
      const copy = await this.#prepare(write, true);
      prepared.push(copy);
      await checks.applied('copy-update', key, await this.#complete(copy));
      const object = await checks.probed.requests.get(key);
      const check = 'copied-parts';
      const asked = 'UploadPartCopy of a range';
      if (Buffer.compare(object?.bytes ?? Buffer.alloc(0), content) !== 0)
        throw checks.failed(
          check,
          { sent: asked, answered: 'other bytes' },
          'what was copied is not what was asked for',
        );
      checks.note('passed', check, { sent: asked, answered: 'that range' });
    } finally {
      await this.#abort(prepared);
    }
  }

  /**
   * Uploads the same bytes with the same metadata twice, as parts or as copies, and counts the
   * different ETags. Both are uploaded before any is completed, because ETags may contain a clock.
   */
  async countEtags(path: 'upload' | 'copy', key: string): Promise<number> {
    const checks = this.#checks;
    const write = await checks.newWrite(key, null, COPIED_BODY_BYTES);
    const { reply } = await checks.send(write.put, write.content);
    if (!('versionIds' in reply) || reply.version === undefined) throw errorOf(reply);
    const prepared: PreparedUpload[] = [];
    try {
      for (const _ of Array(2)) prepared.push(await this.#prepare(write, path === 'copy'));
      const sends = prepared.map((one) => (ifMatch: string | null) => this.#complete(one, ifMatch));
      return await checks.countEtags(sends, checks.ifMatch(reply.version));
    } finally {
      await this.#abort(prepared);
    }
  }

  /** @param copies whether the server copies all parts but the first from the object */
  async #prepare({ put, content }: ProbeWrite, copies = false): Promise<PreparedUpload> {
    const upload = await this.#uploads.create(put);
    try {
      const parts: UploadedPart[] = [];
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
    { put, upload, parts }: PreparedUpload,
    ifMatch: string | null = put.ifMatch,
    halfway?: Halfway,
  ): Promise<Tried> {
    const sent = { ...put, ifMatch };
    const reply = await this.#uploads.complete(sent, upload, parts, 0, { halfway });
    return { writeId: put.stored.writeId, sent: `Complete ${conditionOf(sent)}`, reply };
  }

  async #abort(prepared: readonly PreparedUpload[]): Promise<void> {
    await Promise.all(prepared.map(({ upload }) => this.#uploads.abort(upload)));
  }
}
