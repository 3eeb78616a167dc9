import { type RedisService, startRedis } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { blocksOf, pageOf, run } from './harness/pages.js';

/** The packages of the versions of `redlock`, in the order of the page's sections. */
const REDLOCKS = ['redlock-4', 'redlock-5'];

let redis: RedisService;
let blocks: readonly string[] = [];

beforeAll(async () => {
  redis = await startRedis(3);
  blocks = blocksOf(await pageOf('docs/migration.md'), 'js');
});
afterAll(() => redis?.stop());

/** Runs a block with three clients. Each call of `work` prints the type of its token. */
async function output(block: string, redlock = 'redlock-5', more = ''): Promise<string> {
  const urls = JSON.stringify(redis.nodes.map(({ url }) => url));
  const program = `
import { Redis } from 'ioredis';
const clients = ${urls}.map((url) => new Redis(url));
const work = async (token) => console.log(typeof token);
${block.replace("'redlock'", `'${redlock}'`)}
${more}
for (const client of clients) client.disconnect();
`;
  // Runs in the folder `bench`, where the other libraries are installed.
  return run(program, {}, 'mjs', 'bench');
}

test('each program of the page works before and after', async () => {
  expect(blocks).toHaveLength(8);
  const works = [2, 2, 1, 1];
  for (const [at, count] of works.entries()) {
    const [before = '', after = ''] = blocks.slice(2 * at);
    expect(await output(before, REDLOCKS[at])).toBe('undefined\n'.repeat(count));
    expect(await output(after)).toBe('bigint\n'.repeat(count));
  }
});

test('an old and a new lock of one name are held at the same time', async () => {
  const [, , before = '', after = ''] = blocks;
  const both = before.replace('await work();', after.replace(/^import.*$/m, ''));
  const imports = "import { Redlock as New } from '@fenced/lock';";
  const program = `${imports}\n${both.replace('new Redlock({', 'new New({')}`;
  expect(await output(program)).toBe('bigint\nbigint\nundefined\n');
});
