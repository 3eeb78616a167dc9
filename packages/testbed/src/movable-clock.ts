import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TestbedError } from './errors.js';
import { makeTemporaryFolder } from './guardian.js';
import { FAKETIME_PACKAGE, findFakeTime } from './programs.js';

/** A wall clock for processes, by libfaketime. Their monotonic clock is not changed. */
export class MovableClock implements AsyncDisposable {
  /** Added to the environment of a process, lets it read this clock. */
  readonly env: Readonly<Record<string, string>>;
  readonly #path: string;
  readonly #folder: AsyncDisposable;
  #aheadMs = 0;

  /** @throws {TestbedError} `unavailable` without libfaketime */
  static async start(): Promise<MovableClock> {
    const libraryPath = findFakeTime();
    if (libraryPath === undefined) {
      throw new TestbedError(
        'unavailable',
        `a movable clock needs libfaketime: install the package ${FAKETIME_PACKAGE}`,
      );
    }
    const folder = await makeTemporaryFolder('clock');
    const clock = new MovableClock(libraryPath, folder);
    await clock.set(0);
    return clock;
  }

  private constructor(libraryPath: string, folder: AsyncDisposable & { readonly path: string }) {
    this.#folder = folder;
    this.#path = join(folder.path, 'ahead');
    this.env = {
      // jemalloc reads the time before libfaketime is ready, which ends in an endless loop. With
      // libc in this list, libc allocates the memory.
      LD_PRELOAD: `${libraryPath}:libc.so.6`,
      FAKETIME_TIMESTAMP_FILE: this.#path,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    };
  }

  /** Offset in milliseconds. A negative one is in the past. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /** Sets the offset, also while processes run. */
  async set(aheadMs: number): Promise<void> {
    const next = `${this.#path}.next`;
    await writeFile(next, `${aheadMs < 0 ? '' : '+'}${aheadMs / 1_000}`);
    // The processes read the file all the time, and must not find it half written.
    await rename(next, this.#path);
    this.#aheadMs = aheadMs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#folder[Symbol.asyncDispose]();
  }
}
