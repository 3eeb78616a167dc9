import { createHash } from 'node:crypto';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { CorruptObjectError, UnsupportedByStoreError } from '../../core/errors.js';
import { bareEtag, conditionInput } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { PROBE_VERSION } from './probe.js';
import type { PathCheck } from './probe-paths.js';

/** How many endpoints of one bucket may each have a certificate. */
const CERTIFICATES_MAX = 8;
const DAY_MS = 86_400_000;

/** What was learnt of a server, with the checks of paths that it has passed. */
interface Verdict extends StoreCapabilities {
  readonly paths: readonly PathCheck[];
}

/** Verdicts by whom they are about: the digest of bucket, endpoint, server and version of the probe. */
type Verdicts = Readonly<Record<string, Verdict>>;

/**
 * The probe's verdict, kept in the bucket so that a short-lived process starts with one GET.
 *
 * Nothing is signed: who can write a certificate can write every object of the bucket as well, without any token.
 */
export class Certificates {
  readonly #requests: Requests;
  readonly #key: string;
  readonly #maxAgeDays: number;
  #version: string | null = null;
  #verdicts: Verdicts = {};

  constructor(requests: Requests, probePrefix: string, maxAgeDays: number) {
    this.#requests = requests;
    this.#key = `${probePrefix}certificate.json`;
    this.#maxAgeDays = maxAgeDays;
  }

  /** The verdict on this bucket behind this endpoint; null where there is none that can be believed. */
  async read(nowMs: number, signal?: AbortSignal): Promise<Verdict | null> {
    const object = await this.#requests.get(this.#key, signal).catch((error: unknown) => {
      // Whatever it is that lies there, it is no certificate.
      if (error instanceof CorruptObjectError || error instanceof UnsupportedByStoreError)
        return null;
      throw error;
    });
    this.#version = object?.stored.version ?? null;
    this.#verdicts = parse(Buffer.from(object?.bytes ?? []).toString());
    const found = this.#verdicts[this.#subject()];
    if (found === undefined) return null;
    const ageMs = nowMs - found.checkedAtMs;
    // A certificate of the future was made by a clock that is wrong, or by hand.
    return ageMs >= -DAY_MS && ageMs <= this.#maxAgeDays * DAY_MS ? found : null;
  }

  /** Leaves a verdict for others, unless somebody has changed them meanwhile. What cannot be kept is asked again. */
  async write(verdict: Verdict): Promise<void> {
    if (this.#maxAgeDays === 0) return;
    const { sender } = this.#requests;
    const subject = this.#subject();
    const others = Object.entries(this.#verdicts).filter(([of]) => of !== subject);
    const verdicts = [[subject, verdict], ...others].slice(0, CERTIFICATES_MAX);
    const ifMatch = this.#version && etagHeader(this.#version, verdict.etagForm);
    const command = new PutObjectCommand({
      ...this.#requests.at(this.#key),
      ...this.#requests.encryption,
      ...conditionInput(ifMatch),
      ContentType: 'application/json',
      Body: JSON.stringify(Object.fromEntries(verdicts)),
    });
    const reply = await sender.once({
      ...{ operation: 'put', key: this.#key, command, signal: undefined },
      send: (abortSignal) => sender.client.send(command, { abortSignal }),
    });
    if (!reply.ok) return;
    this.#version = bareEtag(reply.output.ETag) ?? null;
    this.#verdicts = Object.fromEntries(verdicts);
  }

  /** Takes back what is no longer true. */
  async remove(): Promise<void> {
    if (this.#version === null) return;
    await this.#requests.remove(this.#key).catch(() => undefined);
  }

  #subject(): string {
    const { sender, encryption } = this.#requests;
    const { bucket, peer } = sender;
    // ETags are made otherwise of what is encrypted.
    const kind = encryption ? [encryption.ServerSideEncryption] : [];
    const subject = JSON.stringify([PROBE_VERSION, bucket, peer, ...kind]);
    return createHash('sha256').update(subject).digest('hex');
  }
}

/** Nothing of a certificate is believed but what a probe could have said. */
function parse(text: string): Verdicts {
  try {
    const entries = Object.entries(JSON.parse(text) as object);
    return Object.fromEntries(entries.filter((entry) => isVerdict(entry[1])));
  } catch {
    return {};
  }
}

function isVerdict(value: unknown): value is Verdict {
  if (typeof value !== 'object' || value === null) return false;
  const verdict: { readonly [Name in keyof Verdict]?: unknown } = value;
  const { conditionalComplete, distinctEtags, createAfterDelete, checks, report, paths } = verdict;
  return (
    (verdict.etagForm === 'quoted' || verdict.etagForm === 'bare') &&
    ['none', 'null', 'new'].includes(String(verdict.versionIds)) &&
    [conditionalComplete, distinctEtags, createAfterDelete].every((one) => one === !!one) &&
    Number.isSafeInteger(verdict.checkedAtMs) &&
    [checks, paths].every(
      (names) => Array.isArray(names) && names.every((name) => typeof name === 'string'),
    ) &&
    Array.isArray(report) &&
    report.every(isReport)
  );
}

function isReport(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const { check, sent, answered, verdict } = value as Record<string, unknown>;
  return [check, sent, answered, verdict].every((text) => typeof text === 'string');
}
