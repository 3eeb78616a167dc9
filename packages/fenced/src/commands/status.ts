import { parseArgs } from 'node:util';
import { type NodeStatus, STORAGE_VERSION } from '@fenced/lock';
import { type Command, print, printJson, printTable, understood } from '../command.js';
import { type ConnectionErrors, REDIS_USAGE, redisOptions, withRedlock } from '../redis.js';

const EXIT_ATTENTION = 1;
const EXIT_NO_MAJORITY = 2;

export const status: Command = {
  summary: 'shows the nodes of a lock, and which of them vote',
  usage: `fenced status --redis NAME=URL …

${REDIS_USAGE}
  --json             print one JSON document

Exit codes:
  0   all nodes vote, without a warning
  ${EXIT_ATTENTION}   a majority votes, but a node does not, or has a warning
  ${EXIT_NO_MAJORITY}   no majority votes`,

  async run(args) {
    const options = { ...redisOptions, json: { type: 'boolean' } } as const;
    const { values } = understood(() => parseArgs({ args: [...args], options }));
    return withRedlock(values, async (redlock, connectionErrors) => {
      const nodes = await redlock.status();
      if (values.json) printJson({ storageVersion: STORAGE_VERSION, nodes });
      else show(nodes, connectionErrors);
      return exitCode(nodes);
    });
  },
};

function exitCode(nodes: readonly NodeStatus[]): number {
  const votes = nodes.filter((node) => node.reachable && node.noVote === null).length;
  if (2 * votes <= nodes.length) return EXIT_NO_MAJORITY;
  const isWell = nodes.every((node) => node.reachable && node.warnings.length === 0);
  return votes === nodes.length && isWell ? 0 : EXIT_ATTENTION;
}

function show(nodes: readonly NodeStatus[], connectionErrors: ConnectionErrors): void {
  const head = [
    'node',
    'vote',
    'generation',
    'max token',
    'clock',
    'names',
    'memory',
    'keeps',
    'storage',
    'server',
  ];
  printTable([head, ...nodes.map(row)]);
  for (const node of nodes) {
    const reason = (): string => connectionErrors.get(node.name) ?? 'no answer within two seconds';
    const remarks = node.reachable ? node.warnings : [`unreachable: ${reason()}`];
    for (const remark of remarks) print(`${node.name}: ${remark}`);
  }
}

function row(node: NodeStatus): string[] {
  if (!node.reachable) return [node.name, 'unreachable', ...Array(8).fill('-')];
  const clockMs = Math.round(node.clockDifferenceMs);
  return [
    node.name,
    vote(node.noVote, node.waitMs),
    String(node.generation),
    String(node.maxToken),
    `${clockMs < 0 ? '' : '+'}${clockMs} ms`,
    String(node.resources ?? '?'),
    memory(node.usedMemoryBytes, node.maxMemoryBytes),
    node.appendOnly ? 'appendonly' : 'memory',
    storage(node.storageVersion),
    `${node.version} ${node.role}`,
  ];
}

function memory(usedBytes: number, maxBytes: number | null): string {
  const used = `${(usedBytes / 1e6).toFixed(1)} MB`;
  return maxBytes === null ? used : `${used}, ${Math.round((100 * usedBytes) / maxBytes)} %`;
}

/** The storage version of the node, and that of this command if they differ. */
function storage(version: number | null): string {
  if (version === null) return '-';
  return version === STORAGE_VERSION ? String(version) : `${version}, not ${STORAGE_VERSION}`;
}

function vote(noVote: string | null, waitMs: number): string {
  if (noVote === null) return 'yes';
  return waitMs > 0 ? `no: ${noVote}, for another ${waitMs} ms` : `no: ${noVote}`;
}
