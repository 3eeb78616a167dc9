import { LockArgumentError } from '../core/errors.js';
import { checkFields, checkNodeNames } from '../core/options.js';
import type { RedisClient } from '../redis/client.js';
import type { NamedClient } from '../redis/node.js';

/**
 * A client with the name that all programs give its node, or a bare client. The name is then its
 * `host:port` as text: `localhost` and `127.0.0.1` are two names. Give explicit names if several
 * programs connect.
 */
export type NodeConfig =
  | RedisClient
  | {
      readonly name: string;
      readonly client: RedisClient;
      /**
       * Says that the node loses nothing it has acknowledged: `appendonly yes` with `appendfsync always`. After a restart it
       * then votes again at once, instead of waiting until every lease is over that it may have forgotten.
       * @default false
       */
      readonly durable?: boolean;
    };

/**
 * The clients, sorted by the names of their nodes.
 *
 * @throws {LockArgumentError} where a node is no client, has no name, or shares name or client with another one
 */
export function nameNodes(nodes: readonly NodeConfig[]): readonly NamedClient[] {
  if (!Array.isArray(nodes)) throw new LockArgumentError('nodes must be a list of Redis clients');
  const named = nodes.map(nameNode);
  checkNodeNames(named.map(({ name }) => name));
  if (new Set(named.map(({ client }) => client)).size < named.length) {
    throw new LockArgumentError('each node needs a client of its own: one client is used for two');
  }
  return named.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function nameNode(node: NodeConfig, at: number): NamedClient {
  // A client of ioredis has a property `client`, too: the command.
  if (!isClient(node)) checkFields(`nodes[${at}]`, node, ['client', 'name', 'durable']);
  const config: { name?: string | null; client?: unknown; durable?: boolean } = isClient(node)
    ? { name: address(node), client: node }
    : node;
  const { name, client, durable = false } = config;
  if (!isClient(client)) {
    throw new LockArgumentError(`nodes[${at}] is no ioredis client: it has no evalsha and eval`);
  }
  if (typeof durable !== 'boolean') {
    throw new LockArgumentError(
      `durable of nodes[${at}] must be true or false durable=${String(durable)} type=${typeof durable}`,
    );
  }
  if (typeof name === 'string' && name !== '') return { name, client, durable };
  throw new LockArgumentError(
    `nodes[${at}] needs a name that all programs give it: { name, client }; only a client of one host and port is named by its address`,
  );
}

function isClient(value: unknown): value is RedisClient {
  const { evalsha, eval: evaluate } = (value ?? {}) as Partial<RedisClient>;
  return typeof evalsha === 'function' && typeof evaluate === 'function';
}

/** `host:port` of a plain `Redis`; null for a Cluster, a Sentinel-managed master or a socket, which have none. */
function address(client: object): string | null {
  const options: unknown = 'options' in client ? client.options : null;
  if (typeof options !== 'object' || options === null) return null;
  const { host, port, path, sentinels } = options as Record<string, unknown>;
  return host && port && !path && !sentinels ? `${host}:${port}` : null;
}
