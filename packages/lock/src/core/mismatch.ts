import type { MismatchReply, NodeAnswer } from './answers.js';
import { readSet } from './move.js';
import { majorityOf } from './quorum.js';

/**
 * Version of what the nodes keep: keys, fields, lock records and what a vote means. Clients of
 * different storage versions refuse each other's nodes; see docs/storage-versions.md.
 */
export const STORAGE_VERSION = 3;

/** The failure codes if nodes with another configuration leave no majority. */
export type Mismatch = 'config-mismatch' | 'wrong-version';

type Answered = { readonly answer: string };

const isSetUpOtherwise = ({ answer }: Answered): boolean =>
  answer === 'config-mismatch' || answer === 'wrong-version';

export function isMismatch(reply: Answered): reply is MismatchReply {
  return reply.answer === 'not-master' || isSetUpOtherwise(reply);
}

/**
 * The failure code if nodes that were set up with other names or another storage version leave no
 * majority; else null.
 */
export function mismatchIn(answers: readonly Answered[]): Mismatch | null {
  const others = answers.filter((one) => !isSetUpOtherwise(one)).length;
  if (others >= majorityOf(answers.length)) return null;
  return answers.some(({ answer }) => answer === 'wrong-version')
    ? 'wrong-version'
    : 'config-mismatch';
}

/**
 * True if nodes with another configuration have answered, and the pending answers decide whether
 * they leave no majority.
 */
export function mayBeMismatch(answers: readonly Answered[]): boolean {
  if (!answers.some(isSetUpOtherwise) || mismatchIn(answers)) return false;
  const atWorst = answers.map((one) =>
    one.answer === 'pending' ? { answer: 'config-mismatch' } : one,
  );
  return mismatchIn(atWorst) !== null;
}

/**
 * Both sides of each mismatch, the difference, and the remedy; '' if there is no mismatch.
 *
 * @param nodes all nodes of this client, by its own names
 */
export function describeMismatch(nodes: readonly NodeAnswer[]): string {
  return [...movedAway(nodes), ...differentMembers(nodes), ...differentVersions(nodes)].join('; ');
}

function movedAway(nodes: readonly NodeAnswer[]): string[] {
  const own = list(nodes.map(({ name }) => name));
  const sealed = nodes.filter(({ nextSet }) => nextSet !== undefined);
  if (sealed.length === 0) return [];
  const moves = grouped(sealed, ({ members = [], nextSet = '' }) => {
    const { keyPrefix = '' } = readSet(nextSet) ?? {};
    return `sealed for a move to ${list(members)} with the key prefix ${keyPrefix}`;
  });
  return [
    `the locks move to another node set: this client has ${own}, ${moves.join(', ')}; configure those nodes and that key prefix, or give them as next, see docs/changing-nodes.md`,
  ];
}

function differentMembers(nodes: readonly NodeAnswer[]): string[] {
  const own = nodes.map(({ name }) => name);
  const refusals = nodes.filter(
    ({ answer, nextSet }) => answer === 'config-mismatch' && nextSet === undefined,
  );
  if (refusals.length === 0) return [];
  const setUps = grouped(refusals, ({ name, members = [], knownAs = '' }) => {
    const as = knownAs === name ? '' : `as ${knownAs || 'another node'} `;
    return `set up ${as}with ${list(members)}${difference(own, members)}`;
  });
  return [
    `members differ: this client has ${list(own)}, ${setUps.join(', ')}; configure all clients alike, see docs/production.md`,
  ];
}

function differentVersions(nodes: readonly NodeAnswer[]): string[] {
  const refusals = nodes.filter(({ answer }) => answer === 'wrong-version');
  if (refusals.length === 0) return [];
  const setUps = grouped(refusals, ({ storageVersion = 0 }) => `set up with ${storageVersion}`);
  return [
    `storage versions differ: this client has ${STORAGE_VERSION}, ${setUps.join(', ')}; run all clients with the same one, see docs/storage-versions.md`,
  ];
}

/** `node a was …, nodes b and c were …`: nodes with the same text together. */
function grouped(
  nodes: readonly NodeAnswer[],
  describe: (node: NodeAnswer) => string,
): readonly string[] {
  const groups = new Map<string, string[]>();
  for (const node of nodes) {
    const said = describe(node);
    groups.set(said, [...(groups.get(said) ?? []), node.name]);
  }
  return [...groups].map(([said, names]) =>
    names.length === 1
      ? `node ${names[0]} was ${said}`
      : `nodes ${names.join(' and ')} were ${said}`,
  );
}

function difference(own: readonly string[], others: readonly string[]): string {
  const missing = own.filter((name) => !others.includes(name));
  const foreign = others.filter((name) => !own.includes(name));
  const sides = [
    ...(missing.length > 0 ? [`only this client: ${missing.join(', ')}`] : []),
    ...(foreign.length > 0 ? [`only there: ${foreign.join(', ')}`] : []),
  ];
  return sides.length === 0 ? '' : ` (${sides.join('; ')})`;
}

function list(names: readonly string[]): string {
  return `[${names.join(', ')}]`;
}
