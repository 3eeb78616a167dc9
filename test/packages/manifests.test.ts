import { access, readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

const PUBLISHED = ['lock', 'fenced-store', 'client', 'gateway', 'fenced'];

function fileOf(folder: string, name: string): URL {
  return new URL(`../../packages/${folder}/${name}`, import.meta.url);
}

test.each(PUBLISHED)('%s: a README and the licence go to npm with the code', async (folder) => {
  for (const name of ['README.md', 'LICENSE']) await access(fileOf(folder, name));
});

test('@fenced/store has no dependency on express, zod or pino, so any version can be installed beside it', async () => {
  const manifest = JSON.parse(await readFile(fileOf('fenced-store', 'package.json'), 'utf8'));
  expect(manifest.dependencies).toBeUndefined();
  const { peerDependencies, peerDependenciesMeta } = manifest;
  expect(Object.keys(peerDependencies).sort()).toEqual(['@aws-sdk/client-s3', 'pg', 'postgres']);
  for (const name of Object.keys(peerDependencies))
    expect([name, peerDependenciesMeta[name]]).toEqual([name, { optional: true }]);
});
