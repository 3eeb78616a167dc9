import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { GO } from '@fenced/testbed';

/** The verdict of porcupine about one file. */
export interface Porcupine {
  readonly file: string;
  /** Objects that are not linearizable. */
  readonly violated: readonly string[];
  /** Objects that took too long. */
  readonly undecided: readonly string[];
  readonly ms: number;
}

/** The error if porcupine cannot run on this machine. The message says what is missing. */
export class PorcupineMissingError extends Error {}

/**
 * Lets porcupine judge histories. Go compiles it; the first time, it downloads porcupine from the
 * Go module proxy.
 *
 * @param isPruned false to keep the effects that no verdict depends on, which may take very long
 * @throws {PorcupineMissingError}
 */
export async function porcupine(
  files: readonly string[],
  isPruned = true,
): Promise<readonly Porcupine[]> {
  const go = GO.find();
  if (go === undefined)
    throw new PorcupineMissingError('porcupine needs Go 1.19 or newer: put `go` into PATH');
  const cwd = fileURLToPath(new URL('./porcupine', import.meta.url));
  const run = promisify(execFile);
  await run(go, ['mod', 'download'], { cwd }).catch((error: { stderr?: string }) => {
    throw new PorcupineMissingError(`Go could not download porcupine: ${error.stderr ?? error}`);
  });
  const args = [`-prune=${isPruned}`, ...files.map((file) => resolve(file))];
  const { stdout } = await run(go, ['run', '.', ...args], {
    cwd,
    maxBuffer: 2 ** 26,
  });
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Porcupine);
}
