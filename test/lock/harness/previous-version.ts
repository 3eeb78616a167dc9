import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

/** `@fenced/lock` as of an earlier commit; `sh bin/previous COMMIT` writes it. */
const TARBALL = fileURLToPath(new URL('../../fixtures/fenced-lock-previous.tgz', import.meta.url));

type Library = typeof import('@fenced/lock');

/** The previous version of the library, in a folder of its own until it is disposed. */
export class PreviousVersion implements AsyncDisposable {
  readonly library: Library;
  /** For `import`. */
  readonly url: string;
  readonly #folder: string;

  static async unpack(): Promise<PreviousVersion> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-previous-'));
    await promisify(execFile)('tar', ['-xzf', TARBALL, '-C', folder]);
    const url = pathToFileURL(join(folder, 'package/dist/index.js')).href;
    return new PreviousVersion(await import(url), url, folder);
  }

  private constructor(library: Library, url: string, folder: string) {
    this.library = library;
    this.url = url;
    this.#folder = folder;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#folder, { recursive: true });
  }
}
