import { parseArgs } from 'node:util';
import { LockArgumentError } from '@fenced/lock';
import { type Command, print, printJson, UsageError, understood } from '../command.js';
import { REDIS_USAGE, redisOptions, withRedlock } from '../redis.js';

const EXIT_REFUSED = 1;

export const readmit: Command = {
  summary: 'readmits lock nodes to voting',
  usage: `fenced readmit --redis NAME=URL … [--node NAME] [--force]

${REDIS_USAGE}
  --node NAME        this node only; without it, all nodes that do not vote
  --force            readmit at once. You confirm that nodes without an answer
                     are lost, and that no client holds a lease that a node
                     forgot. With --node you confirm that the node's data went
                     back in time while its process ran. If this is wrong, two
                     clients may hold one lock, and the order of tokens depends
                     on the nodes' clocks
  --max-ttl-ms N     also gives all nodes that answer this limit of the leases.
                     Without it, they keep theirs
  --json             print one JSON document

Clients readmit nodes by themselves as soon as that is safe. --force is for the
remaining cases.

Exit codes:
  0   a majority votes, and so does the named node; with --force and without
      --node, all nodes that answered
  ${EXIT_REFUSED}   not so, or unknown; each node's answer is printed`,

  async run(args) {
    const options = {
      ...redisOptions,
      node: { type: 'string' },
      force: { type: 'boolean' },
      json: { type: 'boolean' },
    } as const;
    const { values } = understood(() => parseArgs({ args: [...args], options }));
    const { node, force = false, 'max-ttl-ms': maxTtl } = values;
    return withRedlock(values, async (redlock) => {
      const outcome = await redlock
        .readmit({
          force,
          ...(node === undefined ? {} : { node }),
          ...(maxTtl === undefined ? {} : { maxTtlMs: Number(maxTtl) }),
        })
        .catch((error) => {
          throw error instanceof LockArgumentError ? new UsageError(error.message) : error;
        });
      const nodes = await redlock.status();
      const votes = nodes.filter((one) => one.reachable && one.noVote === null);
      if (values.json) printJson({ ...outcome, nodes });
      else {
        print(`votes: ${votes.map(({ name }) => name).join(', ') || 'none'}, of ${nodes.length}`);
        if (!outcome.ok) print(outcome.reason);
      }
      return outcome.ok ? 0 : EXIT_REFUSED;
    });
  },
};
