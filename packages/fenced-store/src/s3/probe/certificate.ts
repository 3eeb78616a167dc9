import { createHash } from 'node:crypto';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { CorruptObjectError, UnsupportedByStoreError } from '../../core/errors.js';
import { bareEtag, conditionInput } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import type { Probed } from './checks.js';
import type { PathCheck } from './probe-paths.js';

/** Raised if a server could pass an older probe and fail this one. */
const PROBE_VERSION = 5;
/** Number of endpoints of one bucket that may have a certificate. */
const CERTIFICATES_MAX = 8;
const DAY_MS = 86_400_000;

/** The result of a probe, with the checks of ways of writing that the server passed later. */
interface Verdict extends StoreCapabilities {
  readonly paths: readonly PathCheck[];
}

/** The server failed a probe, or a reply contradicted an earlier verdict. */
interface Failure {
  readonly failed: true;
  readonly checkedAtMs: number;
}

interface Certificate {
  readonly verdict: Verdict | Failure;
  /** Digest of subject and verdict, against damage. */
  readonly digest: string;
}

/** Certificates by subject. A subject is a digest of bucket, endpoint, server and probe version. */
type CertificatesBySubject = Readonly<Record<string, Certificate>>;

/**
 * The verdict of a probe, kept in the bucket, so that a short-lived process starts with one GET.
 *
 * A failure is kept in place of an earlier verdict, and wins over later ones. Until it is too old,
 * each process probes for itself, and keeps no verdict. So a process that probed just before the
 * server changed cannot bring its verdict back. Only a probe that was asked for anew ends that.
 *
 * It is not signed: a program that can write a certificate can also write every object of the
 * bucket, without a token.
 */
export class Certificates {
  readonly #requests: Requests;
  readonly #key: string;
  readonly #maxAgeDays: number;
  #version: string | null = null;
  #hasFailed = false;
  #bySubject: CertificatesBySubject = {};

  constructor({ requests, prefix }: Probed, maxAgeDays: number) {
    this.#requests = requests;
    this.#key = `${prefix}certificate.json`;
    this.#maxAgeDays = maxAgeDays;
  }

  /**
   * The verdict on this bucket behind this endpoint; null if there is none that can be believed.
   */
  async read(wallClockMs: number): Promise<Verdict | null> {
    const object = await this.#requests.get(this.#key).catch((error: unknown) => {
      // Another object is stored there, which is no certificate.
      if (error instanceof CorruptObjectError || error instanceof UnsupportedByStoreError)
        return null;
      throw error;
    });
    this.#version = object?.stored.version ?? null;
    this.#bySubject = parse(Buffer.from(object?.bytes ?? []).toString());
    const subject = this.#subject();
    this.#hasFailed = false;
    const { verdict, digest } = this.#bySubject[subject] ?? {};
    if (verdict === undefined || digest !== digestOf([subject, verdict])) return null;
    const ageMs = wallClockMs - verdict.checkedAtMs;
    // A certificate from the future was dated by a wrong clock, so its age is unknown.
    if (ageMs < -DAY_MS || ageMs > this.#maxAgeDays * DAY_MS) return null;
    this.#hasFailed = 'failed' in verdict;
    return 'failed' in verdict ? null : verdict;
  }

  /**
   * Keeps a verdict for other processes, unless one of them changed the object since `read`.
   *
   * @param isAnew whether it may replace a failure
   */
  async write(verdict: Verdict, isAnew: boolean): Promise<void> {
    if (this.#maxAgeDays === 0 || (this.#hasFailed && !isAnew)) return;
    await this.#put(
      verdict,
      conditionInput(this.#version && etagHeader(this.#version, verdict.etagForm)),
    );
  }

  /**
   * Replaces the verdict by a failure, for all processes. Without a condition, which the server may
   * ignore or always refuse. If there is no verdict to replace, nothing is written.
   */
  async fail(wallClockMs: number): Promise<void> {
    if (this.#version === null) return;
    await this.#put({ failed: true, checkedAtMs: wallClockMs }, {});
  }

  async #put(
    verdict: Verdict | Failure,
    condition: ReturnType<typeof conditionInput>,
  ): Promise<void> {
    const { sender, encryption } = this.#requests;
    const subject = this.#subject();
    const certificate = { verdict, digest: digestOf([subject, verdict]) };
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
    const reply = await sender.once({ operation: 'put', key: this.#key, command });
    // A certificate that could not be kept costs the next process a probe.
    if (!reply.ok) return;
    this.#version = bareEtag(reply.output.ETag) ?? null;
    this.#bySubject = bySubject;
    this.#hasFailed = 'failed' in verdict;
  }

  #subject(): string {
    const { sender, encryption } = this.#requests;
    // Encryption changes how ETags are made.
    const kind = encryption ? [encryption.ServerSideEncryption] : [];
    return digestOf([PROBE_VERSION, sender.bucket, sender.peer, ...kind]);
  }
}

function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}

function parse(text: string): CertificatesBySubject {
  try {
    return Object(JSON.parse(text)) as CertificatesBySubject;
  } catch {
    return {};
  }
}
