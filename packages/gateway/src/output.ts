import { fstatSync, write } from 'node:fs';
import { isatty } from 'node:tty';
import { type Runtime, systemRuntime } from './runtime.js';

/** Writes bytes without waiting. Calls back with an error, or with the number of written bytes. */
export type Sink = (
  bytes: Uint8Array,
  done: (error: Error | null | undefined, written: number) => void,
) => void;

/** Lines that wait while another write runs. Beyond that, lines are dropped. */
const WAITING_CHARS_MAX = 2 ** 20;

/**
 * Lines for a destination that may stand still or fail: a full disk, or a pipe that nobody reads.
 * The log of a gateway must neither hold up an answer nor its end, so a line that finds no room is
 * dropped and counted. After a failed write, the next line tries again, from the first byte that
 * was not written. So no line is cut.
 */
export class Output {
  /** Called with the number of dropped lines, as soon as lines can be written again. */
  onRecovered: (dropped: number) => void = () => undefined;
  readonly #sink: Sink;
  readonly #runtime: Runtime;
  #waiting: string[] = [];
  #waitingChars = 0;
  /** The bytes that are being written, or whose write has failed. */
  #batch: Uint8Array = new Uint8Array();
  #isWriting = false;
  #dropped = 0;
  #unreported = 0;
  readonly #flushes = new Set<(isWritten: boolean) => void>();

  constructor(sink: Sink, runtime: Runtime = systemRuntime) {
    this.#sink = sink;
    this.#runtime = runtime;
  }

  /** The number of all lines that were dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  write(line: string): void {
    if (this.#waitingChars + line.length > WAITING_CHARS_MAX) {
      this.#dropped += 1;
      this.#unreported += 1;
    } else {
      this.#waiting.push(line);
      this.#waitingChars += line.length;
    }
    this.#proceed();
  }

  /** @returns true when all lines are written; false if that fails, or takes longer */
  async flush(withinMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#flushes.add(resolve);
    const cancel = this.#runtime.after(withinMs, () => resolve(false));
    this.#proceed();
    const isWritten = await promise;
    cancel();
    this.#flushes.delete(resolve);
    return isWritten;
  }

  #proceed(): void {
    if (this.#isWriting) return;
    if (this.#batch.length === 0) this.#takeBatch();
    if (this.#batch.length === 0) {
      this.#endFlushes(true);
      return;
    }
    this.#isWriting = true;
    this.#sink(this.#batch, (error, written) => {
      this.#isWriting = false;
      if (error) return this.#endFlushes(false);
      this.#batch = this.#batch.subarray(written);
      const hasRoom = this.#batch.length === 0;
      this.#proceed();
      // Behind all lines from before the drops, which are being written now.
      if (hasRoom && this.#unreported > 0) this.onRecovered(this.#takeUnreported());
    });
  }

  #takeBatch(): void {
    this.#batch = Buffer.from(this.#waiting.join(''));
    this.#waiting = [];
    this.#waitingChars = 0;
  }

  #takeUnreported(): number {
    const lines = this.#unreported;
    this.#unreported = 0;
    return lines;
  }

  #endFlushes(isWritten: boolean): void {
    for (const resolve of this.#flushes) resolve(isWritten);
  }
}

/**
 * Standard output. Node's own stream waits for nobody if it is a pipe or a socket. For a file it
 * waits, and ends with the first error. So this function writes to files by itself.
 */
export function standardOutput(): Output {
  const { fd } = process.stdout;
  const stat = fstatSync(fd);
  if (stat.isFile() || (stat.isCharacterDevice() && !isatty(fd)))
    return new Output((bytes, done) => write(fd, bytes, done));
  // The callback of each write reports its error.
  process.stdout.on('error', () => undefined);
  return new Output((bytes, done) =>
    process.stdout.write(bytes, (error) => done(error, bytes.length)),
  );
}
