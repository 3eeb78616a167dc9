import { parseArgs } from 'node:util';
import { LockArgumentError } from '@fenced/lock';
import { type Command, print, printJson, UsageError, understood } from '../command.js';
import { REDIS_USAGE, redisOptions, withRedlock } from '../redis.js';

const EXIT_REFUSED = 1;

export const admit: Command = {
  summary: 'lets nodes vote; with --force, on your word',
  usage: `fenced admit --redis NAME=URL … [--node NAME] [--force]

${REDIS_USAGE}
  --node NAME        one node, by its name; without it all nodes that have no vote
  --force            you know what no node can: those that do not answer are gone for good, and nobody holds a lease that was
                     forgotten. With --node: its data has gone back in time while its process went on, it begins anew.
                     Where that is wrong, two may hold a lock at once, and tokens may rest on the clock
  --json             one JSON document

Clients let nodes vote by themselves as soon as they may; --force is for what is left.
Exit code: 0 it is known that a majority votes, and the node that was named; with --force and without --node, all nodes that
answered. ${EXIT_REFUSED} not so, or unknown: what every node said.`,

  async run(args) {
    const options = {
      ...redisOptions,
      node: { type: 'string' },
      force: { type: 'boolean' },
      json: { type: 'boolean' },
    } as const;
    const { values } = understood(() => parseArgs({ args: [...args], options }));
    const { node, force = false } = values;
    return withRedlock(values, async (redlock) => {
      const outcome = await redlock
        .admit({ force, ...(node === undefined ? {} : { node }) })
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
