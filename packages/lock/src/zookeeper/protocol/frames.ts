import { ProtocolError } from './errors.js';

/** Longest reply in bytes. Servers send at most 1 MiB by default: `jute.maxbuffer`. */
const FRAME_MAX = 8 * 1024 * 1024;

/** Cuts the bytes of a connection into frames. */
export class Frames {
  #chunks: Buffer[] = [];
  #length = 0;
  /** The length of the present frame; -1 while it is not known. */
  #needed = -1;

  /**
   * Adds bytes and returns the frames that they complete.
   *
   * @throws {ProtocolError} a frame states a length that no reply has
   */
  add(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    const frames: Buffer[] = [];
    for (;;) {
      if (this.#needed < 0) {
        if (this.#length < 4) return frames;
        this.#needed = this.#take(4).readInt32BE();
        if (this.#needed < 0 || this.#needed > FRAME_MAX) {
          throw new ProtocolError(`a reply has an impossible length length=${this.#needed}`);
        }
      }
      if (this.#length < this.#needed) return frames;
      frames.push(this.#take(this.#needed));
      this.#needed = -1;
    }
  }

  #take(length: number): Buffer {
    const all = this.#chunks.length === 1 ? this.#chunks[0] : undefined;
    const bytes = all ?? Buffer.concat(this.#chunks);
    this.#chunks = [bytes.subarray(length)];
    this.#length -= length;
    return bytes.subarray(0, length);
  }
}
