import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test, vi } from 'vitest';

// TypeDoc compiles all packages.
vi.setConfig({ testTimeout: 120_000 });

test('the API reference is written without a warning, with a page for each entry point', async () => {
  const out = await mkdtemp(join(tmpdir(), 'fenced-reference-'));
  try {
    const main = fileURLToPath(new URL('../../tools/api/main.ts', import.meta.url));
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [main, '--out', out]);
    expect([stdout, stderr]).toEqual(['', '']);
    const index = await readFile(join(out, 'README.md'), 'utf8');
    const pages = [...index.matchAll(/\]\((.*)\)/g)].map(([, page = '']) => page);
    expect(pages).toEqual(
      expect.arrayContaining([
        '@fenced/lock.md',
        '@fenced/lock/election.md',
        '@fenced/store/s3.md',
      ]),
    );
    const lock = await readFile(join(out, '@fenced/lock.md'), 'utf8');
    expect(lock).toContain('### Redlock\n');
    expect(lock).toContain('Takes the lock of one resource, or of all in a set or none.');
  } finally {
    await rm(out, { recursive: true });
  }
});
