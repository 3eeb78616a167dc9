import { FencedStoreError, StoreUnavailableError, UnsafeStoreError } from '../core/errors.js';
import { type EtagForm, etagHeader } from './capabilities.js';
import { type Checks, conditionOf, type Tried } from './checks.js';
import type { Put } from './put.js';
import type { Part, Upload, Uploads } from './uploads.js';

const WRITERS = 8;
const RUNS_MAX = 3;

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

/** An upload of one part that waits for its Complete. */
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

  async #write(key: string, ifMatch: string | null): Promise<Tried> {
    const ready = await this.#prepare(key, ifMatch);
    const tried = await this.#complete(ready);
    await this.#uploads.abort(ready.upload);
    return tried;
  }

  async #prepare(key: string, ifMatch: string | null): Promise<Ready> {
    const { put, content } = await this.#checks.draft(key, ifMatch);
    const upload = await this.#uploads.create(put);
    const part = await this.#uploads.part(upload, 1, content);
    return { put, upload, parts: [part] };
  }

  async #complete({ put, upload, parts }: Ready): Promise<Tried> {
    const reply = await this.#uploads.complete(put, upload, parts, 0);
    return { writeId: put.stored.writeId, sent: `Complete ${conditionOf(put)}`, reply };
  }
}
