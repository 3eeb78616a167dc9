import type { Socket } from 'node:net';

export type Direction = 'toServer' | 'toClient';

/** Present fault of one direction, and its counters. */
export interface Traffic {
  mode: 'pass' | 'hold' | 'swallow';
  /** Delay of each byte while the mode is `pass`. */
  delayMs: number;
  bytes: number;
  swallowedBytes: number;
}

/** Bytes that may wait for a slow reader. Beyond that, reading from the other side stops. */
const QUEUE_BYTES_MAX = 256 * 1024;

/** Bytes, the end of the stream, or the end of the connection. */
interface Parcel {
  readonly content: Buffer | 'end' | 'reset';
  readonly arrivedAtMs: number;
}

/** One direction of one connection: a queue between two sockets. */
export class Pipe {
  readonly #source: Socket;
  readonly #sink: Socket;
  readonly #traffic: Traffic;
  #queue: Parcel[] = [];
  #queuedBytes = 0;
  #isWriting = false;
  #hasHole = false;
  #isForgotten = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(source: Socket, sink: Socket, traffic: Traffic, onBytes: () => void) {
    this.#source = source;
    this.#sink = sink;
    this.#traffic = traffic;
    source.on('data', (bytes: Buffer) => {
      this.#traffic.bytes += bytes.length;
      this.#queuedBytes += bytes.length;
      this.#enqueue(bytes);
      onBytes();
    });
    source.on('end', () => this.#enqueue('end'));
    // The event `close` follows, whose listener handles every error.
    source.on('error', () => undefined);
    source.on('close', (hadError) => {
      if (hadError || !source.readableEnded) this.#enqueue('reset');
    });
    sink.on('close', () => this.#empty());
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** From now on, discards everything, ends and resets included, whatever the mode. */
  forget(): void {
    this.#isForgotten = true;
    this.update();
  }

  /** Forwards as much as the mode allows now. */
  update(): void {
    clearTimeout(this.#timer);
    if (this.#traffic.mode === 'swallow' || this.#isForgotten) this.#swallow();
    else if (this.#hasHole) this.reset();
    else if (this.#traffic.mode === 'pass') this.#forward();
    const isFull = this.#queuedBytes > QUEUE_BYTES_MAX;
    // Held and delayed bytes count as bytes in the network, which accepts more. Only a slow reader
    // slows the writer down.
    if (isFull && this.#isWriting && this.#traffic.mode === 'pass') this.#source.pause();
    else this.#source.resume();
  }

  /** Resets the connection at both sides. */
  reset(): void {
    this.#source.resetAndDestroy();
    this.#sink.resetAndDestroy();
  }

  #enqueue(content: Parcel['content']): void {
    this.#queue.push({ content, arrivedAtMs: performance.now() });
    this.update();
  }

  #swallow(): void {
    if (this.#queue.length > 0) this.#hasHole = true;
    this.#traffic.swallowedBytes += this.#queuedBytes;
    this.#empty();
  }

  #empty(): void {
    clearTimeout(this.#timer);
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  /** Writes one parcel at a time, so that an end or a reset never overtakes earlier bytes. */
  #forward(): void {
    while (!this.#isWriting) {
      const next = this.#queue[0];
      if (next === undefined) return;
      const waitMs = next.arrivedAtMs + this.#traffic.delayMs - performance.now();
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.update(), waitMs);
        return;
      }
      this.#queue.shift();
      this.#deliver(next.content);
    }
  }

  #deliver(content: Parcel['content']): void {
    if (content === 'end') this.#sink.end();
    else if (content === 'reset') this.#sink.resetAndDestroy();
    else {
      this.#queuedBytes -= content.length;
      this.#isWriting = true;
      this.#sink.write(content, () => {
        this.#isWriting = false;
        this.update();
      });
    }
  }
}
