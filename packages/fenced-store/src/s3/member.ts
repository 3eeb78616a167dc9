import { promisify } from 'node:util';
import {
  crc32,
  deflateRaw as deflateRawCallback,
  inflateRaw as inflateRawCallback,
  type Zlib,
  type ZlibOptions,
} from 'node:zlib';
import { envelopeHeader, envelopeTrailer, HEADER_BYTES, parseEnvelope } from '../core/envelope.js';
import { CorruptObjectError, InvalidArgumentError } from '../core/errors.js';
import type { Stamp } from '../core/stored.js';

const deflateRaw = promisify<Uint8Array, ZlibOptions, Uint8Array>(deflateRawCallback);
// With `info`, zlib also tells how much of its input it has used; the types do not know that.
const inflateRaw = promisify(inflateRawCallback) as unknown as (
  data: Uint8Array,
  options: ZlibOptions,
) => Promise<{ readonly buffer: Uint8Array; readonly engine: Zlib }>;

/**
 * The stored form of a body with a header's worth of room in front, to be stamped anew for every write.
 *
 * @throws {InvalidArgumentError} where the caller changed the body meanwhile: a checksum of some other bytes would make the
 *   object unreadable.
 */
export async function seal(body: Uint8Array, gzipLevel: number): Promise<Uint8Array> {
  const checksum = crc32(body);
  const data = await deflateRaw(body, { level: gzipLevel });
  if (crc32(body) !== checksum)
    throw new InvalidArgumentError('the body was changed before it was written: pass a copy');
  return Buffer.concat([
    new Uint8Array(HEADER_BYTES),
    data,
    envelopeTrailer(checksum, body.length),
  ]);
}

/** A copy of a stored body with another stamp. The caller's bytes are not compressed again. */
export function stamped(member: Uint8Array, stamp: Stamp): Uint8Array {
  const copy = Uint8Array.from(member);
  copy.set(envelopeHeader(stamp));
  return copy;
}

/**
 * The caller's bytes and the stamp they were stored with.
 *
 * Of a damaged member, some padding bits of the DEFLATE data may go unnoticed (nothing reads them); whatever would change
 * the bytes, the token or the write id is found.
 *
 * @throws {CorruptObjectError} where the CRC, the length or the format does not hold.
 */
export async function open(
  resource: string,
  member: Uint8Array,
): Promise<{ readonly stamp: Stamp; readonly body: Uint8Array }> {
  const { stamp, data, ...expected } = parseEnvelope(resource, member);
  const damaged = (cause?: unknown): CorruptObjectError =>
    new CorruptObjectError(resource, 'the stored body is damaged: its checksum does not hold', {
      cause,
    });
  const inflated = await inflateRaw(data, { info: true }).catch((cause: unknown) => {
    throw damaged(cause);
  });
  const body = inflated.buffer;
  if (
    inflated.engine.bytesWritten !== data.length ||
    body.length % 2 ** 32 !== expected.lengthMod2e32 ||
    crc32(body) !== expected.crc32
  )
    throw damaged();
  return { stamp, body };
}
