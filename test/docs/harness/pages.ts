import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** Returns the text of a page of the repository. */
export const pageOf = (path: string): Promise<string> =>
  readFile(new URL(`../../../${path}`, import.meta.url), 'utf8');

/** Returns the blocks of code of a page, in order. */
export function blocksOf(page: string, language: string): readonly string[] {
  const blocks = page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'));
  return [...blocks].map(([, code = '']) => code);
}

/**
 * Writes a program into a folder of the repository, where it finds the packages as a user's program
 * does.
 */
export async function paste(
  program: string,
  extension = 'ts',
  folder = 'test/docs',
): Promise<AsyncDisposable & { readonly file: string }> {
  const name = `${folder}/pasted-${randomUUID()}.${extension}`;
  const file = fileURLToPath(new URL(`../../../${name}`, import.meta.url));
  await writeFile(file, program);
  return { file, [Symbol.asyncDispose]: () => rm(file) };
}

/** Returns the standard output of a program. */
export async function run(
  program: string,
  env: NodeJS.ProcessEnv = {},
  extension = 'ts',
  folder = 'test/docs',
): Promise<string> {
  await using pasted = await paste(program, extension, folder);
  const options = { env: { ...process.env, ...env } };
  return (await promisify(execFile)(process.execPath, [pasted.file], options)).stdout;
}
