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

interface Certificate {
  readonly verdict: Verdict;
  /** Digest of subject and verdict, against damage. */
  readonly digest: string;
}

/** Certificates by subject. A subject is a digest of bucket, endpoint, server and probe version. */
type CertificatesBySubject = Readonly<Record<string, Certificate>>;

/**
 * The verdict of a probe, kept in the bucket, so that a short-lived process starts with one GET.
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
    const { verdict, digest } = this.#bySubject[subject] ?? {};
    if (verdict === undefined || digest !== digestOf([subject, verdict])) return null;
    const ageMs = wallClockMs - verdict.checkedAtMs;
    // A certificate from the future was dated by a wrong clock, so its age is unknown.
    return ageMs >= -DAY_MS && ageMs <= this.#maxAgeDays * DAY_MS ? verdict : null;
  }

  /** Keeps a verdict for other processes, unless one of them changed the object since `read`. */
  async write(verdict: Verdict): Promise<void> {
    if (this.#maxAgeDays === 0) return;
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
        ...conditionInput(this.#version && etagHeader(this.#version, verdict.etagForm)),
        ContentType: 'application/json',
        Body: JSON.stringify(bySubject),
      });
    const reply = await sender.once({ operation: 'put', key: this.#key, command });
    // A certificate that could not be kept costs the next process a probe.
    if (!reply.ok) return;
    this.#version = bareEtag(reply.output.ETag) ?? null;
    this.#bySubject = bySubject;
  }

  /** Removes all certificates of the bucket, because the verdict is no longer true. */
  async remove(): Promise<void> {
    if (this.#version === null) return;
    await this.#requests.remove(this.#key).catch(() => undefined);
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
