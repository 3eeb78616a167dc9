import { LockArgumentError } from '../core/errors.js';
import { checkFields, checkFlag, checkNodeNames } from '../core/options.js';
import { isRedisClient, nodeClientOf, type RedisClient } from '../redis/clients/detect.js';
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
       * Declares that the node loses nothing it has acknowledged: `appendonly yes` with
       * `appendfsync always`. It then votes again at once after a restart, without a recovery wait.
       * @default false
       */
      readonly durable?: boolean;
    };

/**
 * Returns the clients, sorted by the names of their nodes.
 *
 * @throws {LockArgumentError} if a node is no client, has no name, or shares its name or client
 * with another one
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
  const isBare = isRedisClient(node) || !isPlainObject(node);
  if (!isBare) checkFields(`nodes[${at}]`, node, ['client', 'name', 'durable']);
  const config: { name?: string; client?: unknown; durable?: boolean } = isBare
    ? { client: node }
    : node;
  const client = nodeClientOf(config.client, isBare ? `nodes[${at}]` : `nodes[${at}].client`);
  const { name = isBare ? client.address : null, durable = false } = config;
  checkFlag('durable', durable, ` of nodes[${at}]`);
  if (typeof name === 'string' && name !== '') return { name, client, durable };
  throw new LockArgumentError(
    `nodes[${at}] needs a name that all programs give it: { name, client }; only a client of one host and port is named by its address`,
  );
}

/** False for instances of a class, as clients are. */
function isPlainObject(value: unknown): boolean {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}
