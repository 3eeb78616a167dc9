/** What a node knows of itself, and its two ledgers: see `node.lua` and `ledger.lua`. */
export type NodeKeys = readonly [node: string, ledger: string, earlier: string];

export function nodeKeys(keyPrefix: string): NodeKeys {
  return [`${keyPrefix}node`, `${keyPrefix}ledger`, `${keyPrefix}ledger-before`];
}
