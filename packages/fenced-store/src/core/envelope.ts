import { CorruptObjectError } from './errors.js';
import type { Stamp } from './stored.js';
import { TOKEN_MAX } from './token.js';

/**
 * The stored body is one gzip member (RFC 1952): header, DEFLATE data, CRC-32 and length of the caller's bytes. The stamp
 * sits in the header's "extra field", which every gzip reader skips, so the object stays readable by all of them:
 *
 *     1f 8b 08 04 | 00 00 00 00 | 00 ff | 1d 00 | 'F' 'T' | 19 00 | 01    | token    | write id
 *     gzip, extra | no time     | no OS | 29    | our id  | 25    | layout | 8 bytes BE | 16 bytes
 *
 * All but the stamp is constant and compared as such, because gzip's own header checksum (FHCRC) is refused by old readers.
 */
const CONSTANT = [
  0x1f, 0x8b, 0x08, 0x04, 0, 0, 0, 0, 0, 0xff, 29, 0, 0x46, 0x54, 25, 0, 0x01,
] as const;
const LAYOUT_AT = CONSTANT.length - 1;
const TOKEN_AT = CONSTANT.length;
const WRITE_ID_AT = TOKEN_AT + 8;
/** Where the DEFLATE data begins. */
export const HEADER_BYTES: number = WRITE_ID_AT + 16;
/** What stands behind it. */
export const TRAILER_BYTES = 8;

/** What stands behind the data: whether the data holds the caller's bytes is for these to say. */
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
 * @throws {CorruptObjectError} where the bytes are not a member that this library wrote.
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

/** Whether bytes begin as those that this library wrote, in this layout or a later one. */
export function isEnvelope(bytes: Uint8Array): boolean {
  return CONSTANT.every((byte, i) => i === LAYOUT_AT || bytes[i] === byte);
}

/** @throws {CorruptObjectError} where the last bytes of a stored member are not all there. */
export function parseTrailer(resource: string, bytes: Uint8Array): Trailer {
  if (bytes.length < TRAILER_BYTES)
    throw new CorruptObjectError(resource, 'the stored body is cut short');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { crc32: view.getUint32(0, true), lengthMod2e32: view.getUint32(4, true) };
}
