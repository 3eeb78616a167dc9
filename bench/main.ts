import { parseArgs } from 'node:util';
import { benchGateway } from './gateway.ts';
import { benchLock } from './lock.ts';
import type { Row } from './measure.ts';
import { benchPostgres } from './postgres.ts';
import { benchS3 } from './s3.ts';

const benches = { lock: benchLock, s3: benchS3, postgres: benchPostgres, gateway: benchGateway };
const names = Object.keys(benches) as (keyof typeof benches)[];

const { values } = parseArgs({ options: { json: { type: 'boolean' }, only: { type: 'string' } } });
const chosen = names.filter((name) => values.only === undefined || values.only === name);
if (chosen.length === 0) throw new Error(`--only takes one of ${names.join(', ')}: ${values.only}`);

const rows: Row[] = [];
for (const name of chosen) rows.push(...(await benches[name]()));

if (values.json) {
  process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
} else {
  for (const row of rows) {
    const numbers = [`${row.ratio} ×`, `${row.p50Ms} ms`, `${row.p99Ms} ms`, `${row.perSecond}/s`];
    process.stdout.write(
      `${row.bench.padEnd(10)}${row.subject.padEnd(52)}${numbers.map((text) => text.padStart(11)).join('')}\n`,
    );
  }
  process.stdout.write(
    '\nratio of rates to the first line of each bench · median · 99th percentile · rate\n',
  );
}
