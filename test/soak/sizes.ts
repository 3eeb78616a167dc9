import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import { gatewayRequests } from './gateway.ts';
import { clients, leases, waiters } from './trials.ts';

const USAGE = `npm run sizes -- [--leases N] [--waiters N] [--clients N] [--requests N]

Tries large numbers once, each on new real nodes, and prints what they cost as JSON lines.

  --leases N    leases that one process holds at once
  --waiters N   waiters for one resource, in 10 processes
  --clients N   clients with connections of their own, in one process
  --requests N  requests to a gateway, each with a name, a key and an address of its own`;

const TRIALS = { leases, waiters, clients, requests: gatewayRequests };
const chosen = readCommandLine(USAGE, () => {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    options: { leases: text, waiters: text, clients: text, requests: text },
  });
  const entries = Object.entries(values) as [keyof typeof TRIALS, string][];
  if (entries.length === 0) throw new UsageError('name a trial');
  return entries.map(([name, value]) => {
    const count = Number(value);
    if (Number.isSafeInteger(count) && count > 0) return { name, count };
    throw new UsageError(`--${name} must be a whole number above 0: ${value}`);
  });
});
for (const { name, count } of chosen) {
  const figures = await TRIALS[name](count);
  process.stdout.write(`${JSON.stringify({ [name]: count, ...figures })}\n`);
  // Only the trial of a gateway has a verdict.
  if (Array.isArray(figures.growth) && figures.growth.length > 0) process.exitCode = 1;
}
