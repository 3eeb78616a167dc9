import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { COQ, installed } from '@fenced/testbed';
import { type Variant, varied } from './variants.ts';

const run = promisify(execFile);
export const PROOF = join(import.meta.dirname, '..', '..', 'spec', 'proof');

/** The files of the proof; each one needs those before it. */
const FILES = [
  'Roster',
  'Protocol',
  'Memory',
  'Origin',
  'Readmission',
  'Moves',
  'Tokens',
  'Majorities',
  'Example',
] as const;

/**
 * The checker of traces, and the proof that its verdicts are right. Variants leave them out: a
 * variant must fail in the proof of the theorems.
 */
const CHECKER_FILES = [
  'TraceData',
  'Checker',
  'CheckerState',
  'CheckerActions',
  'CheckerQuorums',
  'CheckerSound',
] as const;

/** The files that the checker of traces needs to run. */
export const RUN_FILES = ['Roster', 'Protocol', 'TraceData', 'Checker'] as const;

/** The theorems that must rest on nothing but their own hypotheses. */
export const THEOREMS = [
  'inheritance',
  'cover',
  'seal_covers',
  'tokens_grow',
  'tokens_unique',
  'old_set_has_ended',
  'tokens_grow_majorities',
  'tokens_unique_majorities',
  'not_empty',
  'accepted_is_reached',
  'accepted_tokens_grow',
] as const;

/** Words with which a proof may leave something out. */
const GAPS =
  /\b(?:Axioms?|Parameters?|Conjecture|Admitted|admit|give_up|Abort|Admit Obligations|bypass_check|Unset|Declare ML)\b/;

/** The first error of the compiler. */
interface Failure {
  readonly file: string;
  /** The lemma or theorem in whose proof it is; null if it is anywhere else. */
  readonly lemma: string | null;
  readonly message: string;
}

/** Sources without their comments, in which all words are allowed. */
export function uncommented(source: string): string {
  let depth = 0;
  return source
    .split(/(\(\*|\*\))/)
    .filter((part) => {
      if (part === '(*') depth += 1;
      if (part !== '*)') return depth === 0;
      depth -= 1;
      return false;
    })
    .join('');
}

/** Returns the words of the proof that leave something out; empty if there are none. */
export async function gaps(): Promise<readonly string[]> {
  const sources = await Promise.all([...FILES, ...CHECKER_FILES].map(read));
  return sources.flatMap((source) => GAPS.exec(uncommented(source)) ?? []);
}

function read(file: string): Promise<string> {
  return readFile(join(PROOF, `${file}.v`), 'utf8');
}

/** A folder with the compiled files, which are no part of the repository. */
export class Coq implements AsyncDisposable {
  readonly #coqc: string;
  readonly #folder: string;

  private constructor(coqc: string, folder: string) {
    this.#coqc = coqc;
    this.#folder = folder;
  }

  static async install(): Promise<Coq> {
    const coqc = await installed(COQ);
    return new Coq(coqc, await mkdtemp(join(tmpdir(), 'fenced-proof-')));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#folder, { recursive: true });
  }

  /** Compiles the proof. @returns the first error, or null */
  compile(files: readonly string[] = [...FILES, ...CHECKER_FILES]): Promise<Failure | null> {
    return this.#compileIn(this.#folder, files, null);
  }

  /**
   * Compiles a variant of the proof, until the first error. `compile` must have succeeded before:
   * the files before the changed one are taken from there.
   *
   * @returns the first error, or null
   */
  async compileVariant(variant: Variant): Promise<Failure | null> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-proof-'));
    try {
      const first = FILES.indexOf(variant.file);
      for (const file of FILES.slice(0, first)) {
        await copyFile(join(this.#folder, `${file}.vo`), join(folder, `${file}.vo`));
      }
      return await this.#compileIn(folder, FILES.slice(first), variant);
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  /**
   * Loading the proof takes Coq seconds, so it is asked once about all theorems.
   *
   * @returns what each of `THEOREMS` rests on, in Coq's words
   */
  async assumptions(): Promise<ReadonlyMap<string, string>> {
    const asked = THEOREMS.map((name) => `Redirect "${name}" Print Assumptions ${name}.\n`);
    const imports = 'From Fenced Require Import Majorities Example CheckerSound.\n';
    await writeFile(join(this.#folder, 'Rests.v'), imports + asked.join(''));
    const { stderr } = await this.#coqcIn(this.#folder, 'Rests');
    if (stderr !== '') throw new Error(stderr);
    const told = THEOREMS.map(async (name) => {
      const text = await readFile(join(this.#folder, `${name}.out`), 'utf8');
      return [name, text.trim()] as const;
    });
    return new Map(await Promise.all(told));
  }

  /** Lets Coq run a module on the compiled files. @returns what it prints */
  async output(source: string): Promise<string> {
    await writeFile(join(this.#folder, 'Data.v'), source);
    const { stdout, stderr } = await this.#coqcIn(this.#folder, 'Data');
    if (stderr !== '') throw new Error(stderr);
    return stdout;
  }

  async #compileIn(
    folder: string,
    files: readonly string[],
    variant: Variant | null,
  ): Promise<Failure | null> {
    for (const file of files) {
      const source = await read(file);
      const own = variant?.file === file ? varied(source, variant) : source;
      await writeFile(join(folder, `${file}.v`), own);
      const { stderr } = await this.#coqcIn(folder, file);
      if (stderr !== '') return failureIn(file, own, stderr);
    }
    return null;
  }

  async #coqcIn(folder: string, file: string): Promise<{ stdout: string; stderr: string }> {
    const args = ['-q', '-w', 'none', '-Q', '.', 'Fenced', `${file}.v`];
    try {
      return await run(this.#coqc, args, { cwd: folder });
    } catch (error) {
      const { code, stdout, stderr } = error as { code: unknown; stdout: string; stderr: string };
      if (code === 1) return { stdout, stderr };
      throw error;
    }
  }
}

function failureIn(file: string, source: string, stderr: string): Failure {
  const line = Number(/line (\d+), characters/.exec(stderr)?.[1]);
  const before = source.split('\n').slice(0, line).join('\n');
  const begun = [...before.matchAll(/^\s*(?:Lemma|Theorem) (\w+)/gm)].at(-1);
  // The error is in a proof if that proof has begun before it, and has not ended before its line.
  const proof = before.slice(begun?.index).split('\n').slice(0, -1).join('\n');
  const isInside =
    begun !== undefined && /\bProof\b/.test(proof + lastLine(before)) && !/\bQed\./.test(proof);
  return { file, lemma: isInside ? (begun?.[1] ?? null) : null, message: stderr.trim() };
}

function lastLine(text: string): string {
  return text.slice(text.lastIndexOf('\n') + 1);
}
