import { type RedisService, startRedis } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { blocksOf, pageOf, run } from './harness/pages.js';

let redis: RedisService;
let recipe = '';

beforeAll(async () => {
  redis = await startRedis(6);
  [recipe = ''] = blocksOf(await pageOf('docs/scale.md'), 'ts');
});
afterAll(() => redis?.stop());

/** Runs the recipe, and then `more`. @returns the lines of its output */
async function output(program: string, more: string): Promise<readonly string[]> {
  const urls = JSON.stringify(redis.nodes.map(({ url }) => url));
  const text = await run(`
import { Redis } from 'ioredis';
const clients = ${urls}.map((url) => new Redis(url));
const [a, b, c, d, e, f] = clients;
const write = async (token) => console.log(String(token));
${program}
${more}
for (const client of clients) client.disconnect();
`);
  return text.trim().split('\n');
}

const PLACES = `
const names = Array.from({ length: 100 }, (_, at) => 'n' + at);
console.log(names.map((name) => groups.indexOf(lockOf(name))).join(''));`;

test('two programs with the recipe lock each name in the same group, and use all groups', async () => {
  const [token, places] = await output(recipe, PLACES);
  expect(BigInt(token ?? '')).toBeGreaterThan(0n);
  expect(new Set(places)).toEqual(new Set('01'));
  expect((await output(recipe, PLACES))[1]).toBe(places);
});

test('with another number of groups a held name is free and its token falls, but not with new key prefixes', async () => {
  // Keeps the lock of a name that two groups have in the second one, which began later.
  const name = "Array.from({ length: 100 }, (_, at) => 'n' + at).find((one) => two(one) === 1)";
  const held = `
const two = (one) => createHash('sha256').update(one).digest().readUInt32BE() % 2;
const { token } = await lockOf(${name}).acquire(${name}, { ttlMs: 60_000 });
console.log(String(token));`;
  const fresh = (prefix: string) => recipe.replaceAll('] });', `], keyPrefix: '${prefix}' });`);
  const one = (program: string) => program.replace('[east, west]', '[east]');
  const tokenOf = async (program: string): Promise<bigint> =>
    BigInt((await output(program, held)).at(-1) ?? '');
  await output(one(fresh('{old}:')), '');
  const before = await tokenOf(fresh('{old}:'));
  expect(await tokenOf(one(fresh('{old}:')))).toBeLessThan(before);
  expect(await tokenOf(one(fresh('{new}:')))).toBeGreaterThan(before);
});
