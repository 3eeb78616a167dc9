import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { blocksOf, pageOf, paste, run } from './harness/pages.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

test('the unit test of unit-tests.md passes', async () => {
  const [code = ''] = blocksOf(await pageOf('docs/unit-tests.md'), 'ts');
  await using pasted = await paste(code, 'test.ts');
  const vitest = fileURLToPath(new URL('../node_modules/vitest/vitest.mjs', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [vitest, 'run', pasted.file], {
    cwd: ROOT,
  });
  expect(stdout).toContain('1 passed, 0 failed');
});

test('the fake of unit-tests.md fails as a lock does', async () => {
  const [, fake = ''] = blocksOf(await pageOf('docs/unit-tests.md'), 'ts');
  const call = "lock.using('x', { ttlMs: 1_000 }, () => 1)";
  expect(await run(`${fake}await ${call}.catch(({ code }) => console.log(code));`)).toBe(
    'no-quorum\n',
  );
});
