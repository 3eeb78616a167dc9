import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
const SCRIPTS = 'packages/lock/src/redis/scripts';

const readme = readFileSync(join(ROOT, 'spec', 'README.md'), 'utf8');
const table = readme.slice(readme.indexOf('| action | code | test |'));
const rows = table
  .split('\n')
  .slice(2)
  .filter((line) => line.startsWith('|'))
  .map((line) => line.split('|').map((cell) => cell.trim()));

/** The names that `Next` of a module puts together. */
function actionsOf(module: string): string[] {
  const source = readFileSync(join(ROOT, 'spec', module), 'utf8');
  const next = /^Next ==\n([\s\S]*?)\n\n/m.exec(source)?.[1] ?? '';
  return [...next.matchAll(/\b([A-Z]\w+)(?=\(| *$)/gm)].map(([, name = '']) => name);
}

test('each action of the specifications has a row in the table of spec/README.md', () => {
  const actions = ['Tokens.tla', 'Store.tla'].flatMap(actionsOf);
  expect(actions).toContain('Arrive');
  expect(actions).toContain('Promise');
  const listed = rows.flatMap(([, names = '']) => names.split(', '));
  expect(listed.toSorted()).toEqual([...new Set(actions)].toSorted());
});

test('the code and the tests of each row exist', () => {
  const codeOf = (cell: string): string[] =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, path = '']) =>
      path.endsWith('.lua') ? join(SCRIPTS, path) : join('packages', path),
    );
  const missing = rows
    .flatMap(([, , code = '', tests = '']) => [
      ...codeOf(code),
      ...[...tests.matchAll(/`([^`]+)`/g)].map(([, path = '']) => join('test', path)),
    ])
    .filter((path) => !existsSync(join(ROOT, path)));
  expect(rows.length).toBeGreaterThan(10);
  expect(missing).toEqual([]);
});
