import { codes } from '@fenced/client/protocol/problem-codes';
import * as lock from '@fenced/lock';
import * as store from '@fenced/store';
import { beforeAll, expect, test } from 'vitest';
import { errorOf } from '../../packages/client/src/problems.js';
import { pageOf } from './harness/pages.js';

let page = '';
beforeAll(async () => {
  page = await pageOf('docs/errors.md');
});

/** Returns the rows of the table below a heading, without its head. */
function rowsOf(heading: string): readonly (readonly string[])[] {
  const [, section = ''] = page.split(`## ${heading}\n`);
  const lines = section.split('\n## ')[0]?.split('\n') ?? [];
  const rows = lines.filter((line) => line.startsWith('| ')).slice(1);
  return rows.map((row) => row.split('|').slice(1, -1));
}

const quoted = (cell = ''): string[] =>
  [...cell.matchAll(/`([\w-]+)`/g)].map(([, text = '']) => text);

/** Returns the members of a union of codes, as the source declares it. */
async function codesIn(path: string, union: string): Promise<readonly string[]> {
  const declared = (await pageOf(path)).split(`export type ${union} =`)[1]?.split(';')[0];
  return [...(declared ?? '').matchAll(/'([\w-]+)'/g)].map(([, code = '']) => code);
}

const errorNames = (exports: object): string[] =>
  Object.keys(exports).filter((name) => name.endsWith('Error'));

test('the table of the locks has every code and class', async () => {
  const rows = rowsOf('Errors of the locks');
  const declared = await codesIn('packages/lock/src/core/errors.ts', 'LockErrorCode');
  expect(declared).not.toEqual([]);
  expect(rows.flatMap(([code]) => quoted(code)).toSorted()).toEqual(declared.toSorted());
  expect(new Set(rows.flatMap(([, name]) => quoted(name)))).toEqual(new Set(errorNames(lock)));
});

test('the table of the stores has every code and class', async () => {
  const rows = rowsOf('Errors of the stores');
  const declared = await codesIn(
    'packages/fenced-store/src/core/errors.ts',
    'FencedStoreErrorCode',
  );
  expect(declared).not.toEqual([]);
  expect(rows.flatMap(([code]) => quoted(code)).toSorted()).toEqual(declared.toSorted());
  const classes = errorNames(store).filter((name) => name !== 'FencedStoreError');
  expect(rows.flatMap(([, name]) => quoted(name)).toSorted()).toEqual(classes.toSorted());
});

test('the table of the gateway names the error that the client throws for each code', () => {
  const rows = rowsOf('Errors through a gateway');
  expect(rows.flatMap(([all]) => quoted(all)).toSorted()).toEqual([...codes].toSorted());
  for (const [all, cell] of rows) {
    const [name] = quoted(cell);
    for (const code of quoted(all) as (typeof codes)[number][]) {
      const problem = { code, status: 500, detail: '', retryAfterMs: undefined, members: {} };
      const error = errorOf(problem, { resource: 'a', token: 1n, isWrite: true });
      const expected = name === undefined ? { code } : { name };
      expect({ ...error, name: error.name }, code).toMatchObject(expected);
    }
  }
});
