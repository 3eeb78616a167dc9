import { createHash } from 'node:crypto';
import type { StoreCapabilities } from '../../core/capabilities.js';
import type { PathCheck } from './probe-paths.js';

/** Raised if a server could pass an older probe and fail this one. */
const PROBE_VERSION = 6;
/** A check that the server failed, and how. */
export interface Failure {
  readonly check: string;
  readonly reason: string;
}

/** The result of a probe that the server passed. */
export interface Verdict extends StoreCapabilities {
  /** The checks of ways of writing that the server passed later. */
  readonly passed: readonly PathCheck[];
  /** The checks of ways of writing that the server failed, in any process. */
  readonly failed: { readonly [Of in PathCheck]?: Failure };
}

/**
 * `unsafe`: the server failed a probe. `withdrawn`: a fact on which a verdict rested has changed,
 * or a reply contradicted it.
 */
export type Note =
  | ({ readonly state: 'unsafe'; readonly checkedAtMs: number } & Failure)
  | { readonly state: 'withdrawn'; readonly checkedAtMs: number };

/** The knowledge about the server in the bucket. */
export type Known = ({ readonly state: 'safe' } & Verdict) | Note;

export interface Certificate {
  readonly known: Known;
  /** Digest of subject and content, against damage. */
  readonly digest: string;
}

/** Certificates by subject. A subject is a digest of bucket, endpoint, server and probe version. */
export type CertificatesBySubject = Readonly<Record<string, Certificate>>;

/** A certificate, with its digest. */
export function certificateOf(subject: string, known: Known): Certificate {
  return { known, digest: digestOf([subject, known]) };
}

/** @param encryption changes how ETags are made */
export function subjectOf(bucket: string, peer: string, encryption?: string): string {
  return digestOf([PROBE_VERSION, bucket, peer, ...(encryption ? [encryption] : [])]);
}

export function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}

export function parse(text: string): CertificatesBySubject {
  try {
    return Object(JSON.parse(text)) as CertificatesBySubject;
  } catch {
    return {};
  }
}
