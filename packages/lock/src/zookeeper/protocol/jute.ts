import { ProtocolError } from './errors.js';

/** Writes records in ZooKeeper's encoding "jute": big-endian numbers, and lengths before bytes. */
export class JuteWriter {
  readonly #parts: Buffer[] = [];

  int(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeInt32BE(value);
    return this.#add(part);
  }

  long(value: bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigInt64BE(value);
    return this.#add(part);
  }

  bool(value: boolean): this {
    return this.#add(Buffer.of(value ? 1 : 0));
  }

  bytes(value: Uint8Array): this {
    this.int(value.length);
    return this.#add(Buffer.from(value));
  }

  string(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** All of it, with its length before it: one frame of the connection. */
  frame(): Buffer {
    const length = Buffer.allocUnsafe(4);
    const body = Buffer.concat(this.#parts);
    length.writeInt32BE(body.length);
    return Buffer.concat([length, body]);
  }

  #add(part: Buffer): this {
    this.#parts.push(part);
    return this;
  }
}

/** Reads such records. Every method throws a `ProtocolError` beyond the end of the bytes. */
export class JuteReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  int(): number {
    return this.#take(4).readInt32BE();
  }

  long(): bigint {
    return this.#take(8).readBigInt64BE();
  }

  bool(): boolean {
    return this.#take(1)[0] !== 0;
  }

  /** A length of -1 stands for no bytes. */
  bytes(): Buffer {
    const length = this.int();
    return this.#take(length === -1 ? 0 : length);
  }

  string(): string {
    return this.bytes().toString();
  }

  strings(): string[] {
    const length = this.int();
    // Each takes at least the four bytes of its own length.
    if (length > (this.#bytes.length - this.#at) / 4) throw truncated(length);
    return Array.from({ length: Math.max(0, length) }, () => this.string());
  }

  #take(length: number): Buffer {
    const end = this.#at + length;
    if (length < 0 || end > this.#bytes.length) throw truncated(length);
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }
}

function truncated(length: number): ProtocolError {
  return new ProtocolError(`a reply of ZooKeeper ends before its content does length=${length}`);
}
