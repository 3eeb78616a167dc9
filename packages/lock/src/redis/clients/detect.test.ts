import { expect, test } from 'vitest';
import { LockArgumentError } from '../../core/errors.js';
import { Redlock, type RedlockConfig } from '../../redlock/redlock.js';
import { nodeClientOf } from './detect.js';
import { GlideAdapter } from './glide.js';
import { IoredisAdapter } from './ioredis.js';
import { NodeRedisAdapter } from './node-redis.js';

const run = async (): Promise<unknown> => null;
const ioredis = { evalsha: run, eval: run };
const nodeRedis = {
  isOpen: true,
  evalSha: run,
  on: () => undefined,
  withCommandOptions: () => nodeRedis,
};
const glide = { customCommand: run, invokeScript: run, configGet: run, close: () => undefined };

test.each([
  ['ioredis', ioredis, IoredisAdapter],
  ['node-redis', nodeRedis, NodeRedisAdapter],
  ['Valkey GLIDE', glide, GlideAdapter],
])('a client of %s is recognised, and has one adapter', (_, client, Adapter) => {
  const node = nodeClientOf(client);
  expect(node.owner).toBeInstanceOf(Adapter);
  expect(nodeClientOf(client)).toBe(node);
});

class RedisPool {}
class Connection {}

const mistakes: [what: string, value: unknown, message: RegExp][] = [
  ['nothing', undefined, /nodes\[0\] .* it is undefined/],
  ['an address', 'redis://:secret@host:6379', /it is a string; make a client of the address/],
  ['a port', 6379, /it is a number/],
  ['a class', Connection, /it is the function Connection; make a client with it/],
  ['a client that is still being made', Promise.resolve(glide), /a promise; await it first/],
  ['a client of node-redis 4', { evalSha: run }, /nodes\[0\]/],
  ['an object of another class', new RedisPool(), /it is a RedisPool/],
  ['settings of a client', { host: 'a', port: 1 }, /unknown field host in nodes\[0\]/],
  ['a client under another name', { name: 'a', redis: ioredis }, /unknown field redis/],
  ['a name alone', { name: 'a' }, /nodes\[0\]\.client .* it is undefined/],
  ['a list in place of a client', { name: 'a', client: [ioredis] }, /it is an array/],
  ['a node-redis 4 client with a name', { name: 'a', client: { evalSha: run } }, /node-redis 4/],
  ['settings with a name', { name: 'a', client: { host: 'a' } }, /an object with the fields host/],
  [
    'a client of @upstash/redis',
    { name: 'a', client: { ...ioredis, evalshaRo: run } },
    /@upstash\/redis, which speaks HTTP/,
  ],
  ['a client without an address', ioredis, /nodes\[0\] needs a name/],
];

test.each(mistakes)(
  '%s in place of a client is named, and so is what is supported',
  (...mistake) => {
    const [, value, message] = mistake;
    const open = (): unknown => new Redlock({ nodes: [value] } as RedlockConfig);
    expect(open).toThrow(LockArgumentError);
    expect(open).toThrow(message);
    expect(open).not.toThrow(/secret/);
    if (message.source.includes('it is')) {
      expect(open).toThrow(/use ioredis 5 .* redis \(node-redis\) 5 .*valkey-glide, iovalkey/);
    }
  },
);
