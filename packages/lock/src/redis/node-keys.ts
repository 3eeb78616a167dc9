/** What a node knows of itself and of all resources, and what it knew before: see `node.lua` and `ledger.lua`. */
export type NodeKeys = readonly [node: string, before: string];

export function nodeKeys(keyPrefix: string): NodeKeys {
  return [`${keyPrefix}node`, `${keyPrefix}node-before`];
}
