import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import type { Sample } from './growth.ts';
import { soak } from './soak.ts';

const USAGE = `npm run soak -- [--minutes N] [--rate N] [--json]

Locks go on for a long time on three real nodes: new names, leases that are held and extended,
waiters, and clients that come and go. Memory, names, keys, connections, descriptors and timers are
printed, and must not grow.

  --minutes N   duration (60)
  --rate N      new names a second (20); the rest of the load is in proportion
  --json        prints the report as JSON

Exit code: 0 if nothing grows; 1 otherwise`;
/** Nodes forget a name after twice this time, so memory is level early. */
const TTL_MS = 10_000;
const SAMPLES_MIN = 30;
const SAMPLE_EVERY_MS = 30_000;

const { minutes, rate, json } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '60' },
      rate: { type: 'string', default: '20' },
      json: { type: 'boolean', default: false },
    },
  });
  return { minutes: positive(values.minutes), rate: positive(values.rate), json: values.json };
});

function positive(text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new UsageError(`not a number above 0: ${text}`);
}

const COLUMNS: readonly [string, (sample: Sample) => string][] = [
  ['minute', ({ atMs }) => (atMs / 60_000).toFixed(1)],
  ['heap, MB', ({ heapBytes }) => (heapBytes / 1e6).toFixed(1)],
  ['resident, MB', ({ residentBytes }) => (residentBytes / 1e6).toFixed(0)],
  ['node, MB', ({ nodeBytes }) => (nodeBytes / 1e6).toFixed(2)],
  ['names', ({ names }) => String(names)],
  ['keys', ({ keys }) => String(keys)],
  ['connections', ({ connections }) => String(connections)],
  ['descriptors', ({ descriptors }) => String(descriptors)],
  ['timers', ({ timers }) => String(timers)],
];

const durationMs = minutes * 60_000;
const options = {
  durationMs,
  samples: Math.max(SAMPLES_MIN, Math.round(durationMs / SAMPLE_EVERY_MS)),
  ttlMs: TTL_MS,
  namesPerSecond: rate,
  clientsPerSecond: rate / 40,
  held: Math.ceil(5 * rate),
  waiters: Math.ceil(rate),
  holdMs: 2_000 / rate,
};
const print = (line: string): void => void process.stdout.write(`${line}\n`);
if (!json) print(COLUMNS.map(([name]) => name).join('  '));
const report = await soak(options, (sample) => {
  const cells = COLUMNS.map(([name, text]) => text(sample).padStart(name.length));
  if (!json) print(cells.join('  '));
});
const { acquired, failed, cpuMs, growth } = report;
if (json) print(JSON.stringify({ ...options, ...report }, null, 2));
else {
  print(`${acquired} leases, ${failed} failed, ${(cpuMs / durationMs).toFixed(2)} processors`);
  print(growth.length === 0 ? 'nothing grows' : growth.join('\n'));
}
process.exitCode = growth.length === 0 ? 0 : 1;
