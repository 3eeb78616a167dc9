import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { mutants } from './mutant-list.ts';
import { patched } from './sources.ts';

const sources = new URL('../../packages/lock/src/', import.meta.url);
const files = readdirSync(sources, { recursive: true, encoding: 'utf8' });

const patches = mutants.flatMap(({ name, patch, script }) =>
  [patch, script].flatMap((one) => (one ? [{ name, patch: one }] : [])),
);

test.each(patches)('what "$name" leaves out is there', ({ patch }) => {
  const found = files.filter((file) => `/src/${file}`.endsWith(patch.file));
  expect(found).toHaveLength(1);
  for (const file of found) {
    const source = readFileSync(new URL(file, sources), 'utf8');
    expect(patched(source, patch)).not.toBe(source);
  }
});
