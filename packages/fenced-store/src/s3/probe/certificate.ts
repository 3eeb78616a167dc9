import { PutObjectCommand } from '@aws-sdk/client-s3';
import { etagHeader, type VersionIds } from '../../core/capabilities.js';
import { CorruptObjectError, UnsupportedByStoreError } from '../../core/errors.js';
import { bareEtag, conditionInput } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import {
  type CertificatesBySubject,
  certificateOf,
  digestOf,
  type Failure,
  type Known,
  type Note,
  parse,
  subjectOf,
  type Verdict,
} from './certificate-text.js';
import type { Probed } from './checks.js';
import type { PathCheck } from './probe-paths.js';

/** Number of endpoints of one bucket that may have a certificate. */
const CERTIFICATES_MAX = 8;
/** Number of attempts to add a result while other processes add theirs. */
const AMENDS_MAX = 4;
const DAY_MS = 86_400_000;

/**
 * The verdict on a server, kept in the bucket, so that a short-lived process starts with one GET.
 *
 * Invariant: a failure wins over every pass, of whichever process, and stays until a probe that was
 * asked for passes. A server that fails only sometimes would otherwise be certified by the first
 * lucky process, for all. So an unsafe server is refused without a probe, and a failed way of
 * writing is not tried again. After `withdrawn`, each process probes for itself and keeps no pass:
 * a process that probed just before the server changed cannot bring its verdict back.
 *
 * A certificate counts for one `Server` header, so an upgrade that changes the header begins anew.
 * The reply that brings it shows whether the bucket keeps versions now. A change that no reply
 * shows is not noticed: an upgrade behind the same header, or a proxy that adds none.
 *
 * It is not signed: a program that can write a certificate can also write every object of the
 * bucket, without a token.
 */
export class Certificates {
  readonly #requests: Requests;
  readonly #key: string;
  readonly #maxAgeDays: number;
  #version: string | null = null;
  #bySubject: CertificatesBySubject = {};

  constructor({ requests, prefix }: Probed, maxAgeDays: number) {
    this.#requests = requests;
    this.#key = `${prefix}certificate.json`;
    this.#maxAgeDays = maxAgeDays;
  }

  /**
   * Returns the knowledge about this bucket behind this endpoint; null if there is none that can be
   * believed.
   */
  async read(wallClockMs: number): Promise<Known | null> {
    const object = await this.#requests.get(this.#key).catch((error: unknown) => {
      // Another object is stored there, which is no certificate.
      if (error instanceof CorruptObjectError || error instanceof UnsupportedByStoreError)
        return null;
      throw error;
    });
    this.#version = object?.stored.version ?? null;
    this.#bySubject = parse(Buffer.from(object?.bytes ?? []).toString());
    const subject = this.#subject();
    const { known, digest } = this.#bySubject[subject] ?? {};
    if (known === undefined || digest !== digestOf([subject, known])) return null;
    // Only a probe that is asked for ends it.
    if (known.state === 'unsafe') return known;
    const ageMs = wallClockMs - known.checkedAtMs;
    // A certificate from the future was dated by a wrong clock, so its age is unknown.
    if (ageMs < -DAY_MS || ageMs > this.#maxAgeDays * DAY_MS) return null;
    const isChanged = known.state === 'safe' && !mayShow(known.versionIds, object?.reply.VersionId);
    return isChanged ? { state: 'withdrawn', checkedAtMs: wallClockMs } : known;
  }

  /** Keeps a pass for other processes, unless one of them changed the object since `read`. */
  async keep(verdict: Verdict): Promise<void> {
    if (this.#maxAgeDays === 0) return;
    const condition = conditionInput(this.#version && etagHeader(this.#version, verdict.etagForm));
    await this.#put({ state: 'safe', ...verdict }, condition);
  }

  /**
   * Adds the result of a check of a way of writing. If another process saw it fail, that counts.
   *
   * @param failure how the server failed it; null if it passed
   * @returns the failure that counts; null if there is none
   */
  async amend(
    check: PathCheck,
    failure: Failure | null,
    wallClockMs: number,
  ): Promise<Failure | null> {
    for (let attempt = 1; ; attempt++) {
      const known = await this.read(wallClockMs).catch(() => null);
      if (known?.state !== 'safe') return failure;
      const counted = known.failed[check] ?? failure;
      if (known.failed[check]) return counted;
      const { state: _, ...verdict } = known;
      const passed = counted ? known.passed : [...new Set([...known.passed, check])];
      const failed = counted ? { ...known.failed, [check]: counted } : known.failed;
      const condition = conditionInput(
        this.#version && etagHeader(this.#version, verdict.etagForm),
      );
      const isKept = await this.#put({ state: 'safe', ...verdict, passed, failed }, condition);
      if (isKept || attempt === AMENDS_MAX) return counted;
    }
  }

  /**
   * Replaces whatever is known, for all processes. Without a condition, which the server may ignore
   * or always refuse.
   */
  async note(note: Note): Promise<void> {
    await this.#put(note, {});
  }

  /** A certificate that could not be kept costs the next process a probe. */
  async #put(
    known: Known,
    condition: Partial<ReturnType<typeof conditionInput>>,
  ): Promise<boolean> {
    const { sender, encryption } = this.#requests;
    const subject = this.#subject();
    const certificate = certificateOf(subject, known);
    const others = Object.entries(this.#bySubject).filter(([of]) => of !== subject);
    const all = [[subject, certificate], ...others].slice(0, CERTIFICATES_MAX);
    const bySubject: CertificatesBySubject = Object.fromEntries(all);
    const command = () =>
      new PutObjectCommand({
        ...this.#requests.at(this.#key),
        ...encryption,
        ...condition,
        ContentType: 'application/json',
        Body: JSON.stringify(bySubject),
      });
    const request = { operation: 'put', key: this.#key, command } as const;
    const reply = await sender.repeatedly(request).catch(() => null);
    if (!reply?.ok) return false;
    this.#version = bareEtag(reply.output.ETag) ?? null;
    this.#bySubject = bySubject;
    return true;
  }

  #subject(): string {
    const { sender, encryption } = this.#requests;
    return subjectOf(sender.bucket, sender.peer, encryption?.ServerSideEncryption);
  }
}

/**
 * True if an object that was written under these version ids may be read with this one. A bucket
 * without versions shows none; as soon as it keeps versions, it shows one for each older object.
 */
function mayShow(versionIds: VersionIds, versionId: string | undefined): boolean {
  return versionIds !== 'none' || versionId === undefined;
}
