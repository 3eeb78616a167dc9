import { encodedPath, segmentsOf } from '@fenced/client/protocol/path';
import { OutcomeUnknownError } from '@fenced/store';
import { type Answer, jsonAnswer } from './answer.js';
import type { Exchange } from './exchange.js';
import { Problem } from './problem.js';
import { WRITE_NAME } from './wire-schemas.js';

/** A write as clients see it. Any gateway can look up its outcome. */
export interface NamedWrite {
  readonly kind: 'objects' | 'records';
  readonly id: string;
  /** The key of an object; collection and id of a record, with a slash between. */
  readonly key: string;
}

export function nameWrite({ kind, id, key }: NamedWrite): string {
  return `${kind}.${id}.${Buffer.from(key).toString('base64url')}`;
}

/** @throws {Problem} `invalid-request` */
export function parseWriteName(text: string): NamedWrite {
  const [, kind, id = '', encoded = ''] = WRITE_NAME.exec(text) ?? [];
  const key = Buffer.from(encoded, 'base64url').toString();
  if ((kind === 'objects' || kind === 'records') && nameWrite({ kind, id, key }) === text) {
    // Checks the key as if it stood in a path. A record has two segments there. With more, the
    // caller's right would be for another name than the one that is looked up.
    const segments = segmentsOf(`/${encodedPath(key)}`);
    if (kind === 'objects' || segments.length === 2) return { kind, id, key };
  }
  throw new Problem('invalid-request', 'this is not the writeId of an answer of this gateway');
}

/** Options of every write of a store. */
interface WriteCall {
  readonly signal: AbortSignal;
  readonly onWriteId: (writeId: string) => void;
}

/**
 * Writes, and returns the outcome.
 *
 * @throws {Problem} `outcome-unknown`, with the write's id for `/v1/writes`
 */
export async function settled<Outcome>(
  exchange: Exchange,
  kind: NamedWrite['kind'],
  key: string,
  write: (call: WriteCall) => Promise<Outcome>,
): Promise<Outcome> {
  const onWriteId = (id: string): void => {
    exchange.writeId = nameWrite({ kind, id, key });
  };
  try {
    return await write({ signal: exchange.signal, onWriteId });
  } catch (error) {
    if (!(error instanceof OutcomeUnknownError)) throw error;
    throw outcomeUnknown(nameWrite({ kind, id: error.writeId, key }), error);
  }
}

/** Answers a write that was applied. */
export function answerWrite(
  kind: NamedWrite['kind'],
  key: string,
  written: {
    readonly token: bigint;
    readonly version: string | bigint | null;
    readonly writeId: string;
  },
  headers: Readonly<Record<string, string>> = {},
): Answer {
  const token = String(written.token);
  const version = written.version === null ? null : String(written.version);
  const writeId = nameWrite({ kind, id: written.writeId, key });
  return jsonAnswer(
    200,
    { token, version, writeId },
    { ...headers, 'Fencing-Token': token, 'Fencing-Write-Id': writeId },
  );
}

/** Answers a claim: lower tokens are refused from now on. */
export function answerClaim(claimed: bigint): Answer {
  const token = String(claimed);
  return jsonAnswer(200, { token }, { 'Fencing-Token': token });
}

/**
 * Makes a call that may claim a record, and returns its outcome.
 *
 * @throws {Problem} `outcome-unknown`, without a write id: claims of records have none
 */
export async function settledClaim<Outcome>(
  exchange: Exchange,
  claim: () => Promise<Outcome>,
): Promise<Outcome> {
  exchange.writeId = null;
  try {
    return await claim();
  } catch (error) {
    throw error instanceof OutcomeUnknownError ? outcomeUnknown(null, error) : error;
  }
}

/** @param writeId null for a claim of a record */
export function outcomeUnknown(writeId: string | null, cause?: unknown): Problem {
  if (writeId === null)
    return new Problem(
      'outcome-unknown',
      'the store did not reply: lower tokens may or may not be refused. Claim again with the same token, which is harmless',
      { cause },
    );
  return new Problem(
    'outcome-unknown',
    'the store did not reply: the write may be applied, now or later. Ask for its outcome at settle, or write again with the same token',
    { members: { writeId, settle: `/v1/writes/${writeId}` }, cause },
  );
}
