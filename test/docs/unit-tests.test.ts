import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { blocksOf, pageOf, paste } from './harness/pages.js';

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
