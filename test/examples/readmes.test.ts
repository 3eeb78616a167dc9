import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const folders = globSync('examples/*/README.md', { cwd: ROOT }).map((path) => path.split('/')[1]);
const tests = globSync('test/examples/*.test.ts', { cwd: ROOT }).map(read).join('\n');

test.each(folders)('%s has a short README, a test, and a place in the recipes', (folder) => {
  expect(read(`examples/${folder}/README.md`).split('\n').length).toBeLessThanOrEqual(20);
  expect(tests).toMatch(RegExp(`${folder}/(main|dist)`));
  expect(read('docs/recipes.md')).toContain(`(../examples/${folder}/README.md)`);
});
