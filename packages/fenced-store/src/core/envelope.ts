import { CorruptObjectError } from './errors.js';
import type { Stamp } from './stored.js';
import { TOKEN_MAX } from './token.js';

/**
 * The stored body is one gzip member (RFC 1952): header, DEFLATE data, CRC-32 and length of the
 * caller's bytes. The stamp is in the "extra field" of the header, which every gzip reader skips:
 *
 *     1f 8b 08 04 | 00 00 00 00 | 00 ff | 1d 00 | 'F' 'T' | 19 00 | 01    | token    | write id
 *     gzip, extra | no time     | no OS | 29    | our id  | 25    | layout | 8 bytes BE | 16 bytes
 *
 * Everything else is constant, and compared. Old readers refuse the header checksum of gzip
 * (FHCRC).
 */
const CONSTANT = [
  0x1f, 0x8b, 0x08, 0x04, 0, 0, 0, 0, 0, 0xff, 29, 0, 0x46, 0x54, 25, 0, 0x01,
] as const;
const LAYOUT_AT = CONSTANT.length - 1;
const TOKEN_AT = CONSTANT.length;
const WRITE_ID_AT = TOKEN_AT + 8;
/** Size of the header. */
export const HEADER_BYTES: number = WRITE_ID_AT + 16;
/** Size of the trailer, behind the DEFLATE data. */
export const TRAILER_BYTES = 8;

/** Checksum and length of the caller's bytes. */
export interface Trailer {
  readonly crc32: number;
  /** The length of the caller's bytes modulo 2^32. */
  readonly lengthMod2e32: number;
}

/** The header of a member that carries `stamp`. */
export function envelopeHeader(stamp: Stamp): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES);
  header.set(CONSTANT);
  new DataView(header.buffer).setBigUint64(TOKEN_AT, stamp.token);
  for (let i = 0; i < 16; i++)
    header[WRITE_ID_AT + i] = Number.parseInt(stamp.writeId.slice(2 * i, 2 * i + 2), 16);
  return header;
}

/** The trailer of a member. */
export function envelopeTrailer(crc32: number, length: number): Uint8Array {
  const trailer = new Uint8Array(TRAILER_BYTES);
  const view = new DataView(trailer.buffer);
  view.setUint32(0, crc32, true);
  view.setUint32(4, length % 2 ** 32, true);
  return trailer;
}

/**
 * The stamp in the first bytes of a stored member.
 *
 * @throws {CorruptObjectError} if this library did not write the member.
 */
export function parseHeader(resource: string, bytes: Uint8Array): Stamp {
  if (bytes.length < HEADER_BYTES)
    throw new CorruptObjectError(resource, `the stored body is cut short bytes=${bytes.length}`);
  if (!isEnvelope(bytes))
    throw new CorruptObjectError(
      resource,
      'the stored body does not begin with the gzip header of this library: something else wrote it, or decompressed it on the way',
    );
  if (bytes[LAYOUT_AT] !== CONSTANT[LAYOUT_AT])
    throw new CorruptObjectError(
      resource,
      `the stored body has a layout that this version does not know layout=${bytes[LAYOUT_AT]}`,
    );
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const token = view.getBigUint64(TOKEN_AT);
  if (token < 1n || token > TOKEN_MAX)
    throw new CorruptObjectError(resource, `the stored body holds no fencing token token=${token}`);
  const writeId = Array.from(bytes.subarray(WRITE_ID_AT, HEADER_BYTES), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
  return { token, writeId };
}

/** True if the bytes begin with a header of this library, in this layout or a later one. */
export function isEnvelope(bytes: Uint8Array): boolean {
  return CONSTANT.every((byte, i) => i === LAYOUT_AT || bytes[i] === byte);
}

/** @throws {CorruptObjectError} if the trailer is cut short. */
export function parseTrailer(resource: string, bytes: Uint8Array): Trailer {
  if (bytes.length < TRAILER_BYTES)
    throw new CorruptObjectError(resource, 'the stored body is cut short');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { crc32: view.getUint32(0, true), lengthMod2e32: view.getUint32(4, true) };
}
