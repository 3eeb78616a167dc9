import { LockArgumentError } from '../../core/errors.js';
import type { ClientAdapter } from '../client.js';
import { WatchedClient } from '../watched-client.js';
import { GlideAdapter, type ValkeyGlideClient } from './glide.js';
import { IoredisAdapter, type IoredisClient } from './ioredis.js';
import { NodeRedisAdapter, type NodeRedisClient } from './node-redis.js';

/** A client of ioredis, iovalkey, node-redis or Valkey GLIDE, recognised by its methods. */
export type RedisClient = IoredisClient | NodeRedisClient | ValkeyGlideClient;

const SUPPORTED =
  'ioredis 5 or later, redis (node-redis) 5 or later, @valkey/valkey-glide, iovalkey';

/** All lock services that use a client share one of these. */
const watched = new WeakMap<RedisClient, WatchedClient>();

export function isRedisClient(value: unknown): value is RedisClient {
  return isIoredis(value) || isNodeRedis(value) || isGlide(value);
}

/**
 * The node behind a client.
 *
 * @param name of the argument, for the message
 * @throws {LockArgumentError} if it is no client, or of a kind that is not supported
 */
export function nodeClientOf(client: unknown, name = 'client'): WatchedClient {
  if (!isRedisClient(client)) {
    throw new LockArgumentError(
      `${name} is no Redis client that is supported: it is ${described(client)}; use ${SUPPORTED}`,
    );
  }
  let known = watched.get(client);
  if (!known) {
    known = new WatchedClient(newAdapter(client));
    watched.set(client, known);
  }
  return known;
}

function newAdapter(client: RedisClient): ClientAdapter {
  if (isIoredis(client)) return new IoredisAdapter(client);
  return isNodeRedis(client) ? new NodeRedisAdapter(client) : new GlideAdapter(client);
}

function isIoredis(value: unknown): value is IoredisClient {
  return hasMethods(value, 'evalsha', 'eval') && !isUpstash(value);
}

function isNodeRedis(value: unknown): value is NodeRedisClient {
  return hasMethods(value, 'evalSha', 'withCommandOptions');
}

function isGlide(value: unknown): value is ValkeyGlideClient {
  return hasMethods(value, 'customCommand', 'invokeScript');
}

/** Upstash's methods have the same names as those of ioredis, but other arguments. */
function isUpstash(value: unknown): boolean {
  return hasMethods(value, 'evalsha', 'evalshaRo');
}

function hasMethods(value: unknown, ...names: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const members = value as Record<string, unknown>;
  return names.every((name) => typeof members[name] === 'function');
}

/** Describes a value without showing it, because it may contain a password. */
function described(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'string') return 'a string; make a client of the address';
  if (typeof value === 'function') return `the function ${value.name}; make a client with it`;
  if (typeof value !== 'object') return `a ${typeof value}`;
  if (hasMethods(value, 'then')) return 'a promise; await it first';
  if (isUpstash(value)) return 'a client of @upstash/redis, which speaks HTTP';
  if (hasMethods(value, 'evalSha')) return 'a client of node-redis 4 or older';
  const { name } = (Object.getPrototypeOf(value) ?? Object).constructor;
  const fields = Object.keys(value).slice(0, 5).join(', ');
  return name === 'Object' ? `an object with the fields ${fields || '(none)'}` : `a ${name}`;
}
