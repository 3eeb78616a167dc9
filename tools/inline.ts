import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripComments } from './strip-comments.ts';

/**
 * Writes the Lua scripts and SQL schemas, without their comments, into modules of TypeScript.
 * A package that reads no file at run time works in every bundler. `bin/setup` runs this before
 * each compilation.
 */

const root = new URL('../packages/', import.meta.url);

const scripts = 'lock/src/redis/scripts/';
const sources = Object.fromEntries(
  readdirSync(new URL(scripts, root)).map((file) => [
    file.replace(/\.lua$/, ''),
    text(scripts + file),
  ]),
);
write(
  'lock/src/redis/scripts.generated.ts',
  `/** The Lua sources of \`scripts/\`, by the names of their files. */
export const sources: Readonly<Record<string, string>> = ${JSON.stringify(sources, null, 2)};`,
);

for (const folder of ['lock/src/postgres/', 'fenced-store/src/postgres/']) {
  write(
    `${folder}schema.generated.ts`,
    `/** The text of \`schema.sql\`. */
export const schema: string = ${JSON.stringify(text(`${folder}schema.sql`))};`,
  );
}

function text(file: string): string {
  return stripComments(
    readFileSync(new URL(file, root), 'utf8'),
    file.endsWith('.lua') ? 'lua' : 'sql',
  );
}

/**
 * Writes a module if its text has changed. Otherwise it keeps its time, and is not compiled again.
 */
function write(file: string, code: string): void {
  const path = new URL(file, root);
  const module = `// Written by tools/inline.ts.\n${code}\n`;
  try {
    if (readFileSync(path, 'utf8') === module) return;
  } catch {
    // The module does not exist yet.
  }
  writeFileSync(path, module);
}
