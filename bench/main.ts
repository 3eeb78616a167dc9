import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from '@fenced/testbed/command-line';
import { benchGateway } from './gateway.ts';
import { benchAtOnce } from './lock-at-once.ts';
import { benchContended } from './lock-contended.ts';
import { benchFaults } from './lock-faults.ts';
import { benchMemory } from './lock-memory.ts';
import { benchPaced } from './lock-paced.ts';
import { benchScripts } from './lock-scripts.ts';
import { benchSequential } from './lock-sequential.ts';
import { benchLockServices } from './lock-services.ts';
import type { BenchOptions, Row } from './measure.ts';
import { benchPostgres } from './postgres.ts';
import { publishTables } from './publish.ts';
import { terminalTables } from './report.ts';
import { benchS3 } from './s3.ts';
import { lockPicture } from './svg.ts';

const benches: Record<string, (options: BenchOptions) => Promise<Row[]>> = {
  'lock-sequential': benchSequential,
  'lock-paced': benchPaced,
  'lock-64-at-once': benchAtOnce,
  'lock-contended': benchContended,
  'lock-faults': benchFaults,
  'lock-memory': benchMemory,
  'lock-scripts': benchScripts,
  'lock-services': benchLockServices,
  s3: benchS3,
  postgres: benchPostgres,
  gateway: benchGateway,
};

const USAGE = `npm run bench -- [--only NAME]… [--quick] [--json] [--tables FILE] [--svg FOLDER]

Starts real servers and measures on them. docs/performance.md explains the rows.

  --only NAME     one of ${Object.keys(benches).join(', ')},
                  or lock for all rows of the lock; repeatable (all, about an hour)
  --quick         a minute for the lock, which shows only that everything works
  --json          print one JSON document instead of tables
  --tables FILE   write the tables between their markers into FILE, such as docs/performance.md
  --svg FOLDER    write lock-speed.svg into FOLDER`;

const values = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      only: { type: 'string', multiple: true },
      tables: { type: 'string' },
      svg: { type: 'string' },
    },
  });
  const unknown = values.only?.find(
    (one) => !Object.keys(benches).some((name) => isChosen(name, one)),
  );
  if (unknown === undefined) return values;
  throw new UsageError(
    `--only takes lock or one of ${Object.keys(benches).join(', ')}, not ${unknown}`,
  );
});
const { only, quick: isQuick, tables, svg } = values;

const rows: Row[] = [];
for (const [name, bench] of Object.entries(benches)) {
  if (only && !only.some((one) => isChosen(name, one))) continue;
  process.stderr.write(`${name} …\n`);
  const measured = await bench({ isQuick });
  if (!values.json) process.stdout.write(terminalTables(measured));
  rows.push(...measured);
}

if (values.json) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
if (tables !== undefined) await publishTables(tables, rows, isQuick);
const picture = lockPicture(rows);
if (svg !== undefined && picture !== null) await writeFile(join(svg, 'lock-speed.svg'), picture);

/** `lock` chooses every bench of the lock. */
function isChosen(name: string, only: string): boolean {
  return name === only || name.startsWith(`${only}-`);
}
