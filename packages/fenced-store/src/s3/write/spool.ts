import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { envelopeHeader, HEADER_BYTES } from '../../core/envelope.js';
import { StoreSetupError, UnsupportedByStoreError } from '../../core/errors.js';
import type { Layout, Stamp } from '../../core/stored.js';
import { checksumHeader, type FileContent } from '../http/put.js';

/**
 * A temporary file for a stream that must be sent in one PUT, which needs its length first. Only
 * its owner may read it. Its name is removed at once, so a crash leaves nothing on the disk.
 */
export class SpoolFile implements AsyncDisposable {
  readonly #file: FileHandle;
  readonly #path: string;
  #bytes = 0;

  private constructor(file: FileHandle, path: string) {
    this.#file = file;
    this.#path = path;
  }

  /**
   * @param name random
   * @throws {StoreSetupError} if the folder for temporary files cannot be written to.
   * @throws {UnsupportedByStoreError} if there are more bytes than one PUT may have.
   */
  static async of(
    pieces: AsyncIterable<Uint8Array>,
    name: string,
    bytesMax: number,
  ): Promise<SpoolFile> {
    const path = join(tmpdir(), `fenced-${name}`);
    const file = await open(path, 'wx+', 0o600).catch(rethrow(path));
    const spool = new SpoolFile(file, path);
    try {
      // Windows keeps the name until the file is closed.
      await unlink(path).catch(() => undefined);
      for await (const piece of pieces) await spool.#append(piece, bytesMax);
      return spool;
    } catch (error) {
      await spool[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The file as the body of one write. */
  async stamped(stamp: Stamp & { readonly layout: Layout }): Promise<FileContent> {
    if (stamp.layout === 'gzip') await this.#file.write(envelopeHeader(stamp), 0, HEADER_BYTES, 0);
    let checksum = 0;
    for await (const chunk of this.#read()) checksum = crc32(chunk as Buffer, checksum);
    return { bytes: this.#bytes, crc32: checksumHeader(checksum), read: () => this.#read() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // An error is ignored: it does not change the outcome of the write that was sent from the file.
    await this.#file.close().catch(() => undefined);
    await unlink(this.#path).catch(() => undefined);
  }

  async #append(piece: Uint8Array, bytesMax: number): Promise<void> {
    if (this.#bytes + piece.length > bytesMax)
      throw new UnsupportedByStoreError(
        `this server cannot complete a multipart upload under a condition, and the body is larger than one PUT may be storedBytesMax=${bytesMax}`,
      );
    for (let at = 0; at < piece.length; ) {
      const { bytesWritten } = await this.#file
        .write(piece, at, piece.length - at, this.#bytes)
        .catch(rethrow(this.#path));
      at += bytesWritten;
      this.#bytes += bytesWritten;
    }
  }

  #read(): Readable {
    return this.#file.createReadStream({ start: 0, autoClose: false, highWaterMark: 2 ** 18 });
  }
}

function rethrow(path: string): (cause: unknown) => never {
  return (cause) => {
    throw new StoreSetupError(
      `the body could not be kept in a temporary file until it is sent: make room there, or set TMPDIR path=${path} reason=${String(cause)}`,
      { cause },
    );
  };
}
