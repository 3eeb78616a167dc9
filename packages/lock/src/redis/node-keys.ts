/**
 * The hash of a node, and the hash that it replaced. Both have facts about resources, and the first
 * also about the node itself: see `node.lua` and `lock-table.lua`.
 */
export type NodeKeys = readonly [node: string, before: string];

export function nodeKeys(keyPrefix: string): NodeKeys {
  return [`${keyPrefix}node`, `${keyPrefix}node-before`];
}
