import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { benchGateway } from './gateway.ts';
import { benchAtOnce } from './lock-at-once.ts';
import { benchContended } from './lock-contended.ts';
import { benchFaults } from './lock-faults.ts';
import { benchMemory } from './lock-memory.ts';
import { benchScripts } from './lock-scripts.ts';
import { benchSequential } from './lock-sequential.ts';
import type { BenchOptions, Row } from './measure.ts';
import { benchPostgres } from './postgres.ts';
import { publishTables } from './publish.ts';
import { terminalTables } from './report.ts';
import { benchS3 } from './s3.ts';
import { lockPicture } from './svg.ts';

const benches: Record<string, (options: BenchOptions) => Promise<Row[]>> = {
  'lock-sequential': benchSequential,
  'lock-64-at-once': benchAtOnce,
  'lock-contended': benchContended,
  'lock-faults': benchFaults,
  'lock-memory': benchMemory,
  'lock-scripts': benchScripts,
  s3: benchS3,
  postgres: benchPostgres,
  gateway: benchGateway,
};

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    only: { type: 'string', multiple: true },
    tables: { type: 'string' },
    svg: { type: 'string' },
  },
});
const { only, quick: isQuick, tables, svg } = values;
for (const one of only ?? []) {
  if (Object.keys(benches).some((name) => isMeant(name, one))) continue;
  throw new Error(`--only takes lock or one of ${Object.keys(benches).join(', ')}, not ${one}`);
}

const rows: Row[] = [];
for (const [name, bench] of Object.entries(benches)) {
  if (only && !only.some((one) => isMeant(name, one))) continue;
  process.stderr.write(`${name} …\n`);
  rows.push(...(await bench({ isQuick })));
}

process.stdout.write(values.json ? `${JSON.stringify(rows, null, 2)}\n` : terminalTables(rows));
if (tables !== undefined) await publishTables(tables, rows, isQuick);
const picture = lockPicture(rows);
if (svg !== undefined && picture !== null) await writeFile(join(svg, 'lock-speed.svg'), picture);

/** `lock` means all that begin with it. */
function isMeant(name: string, only: string): boolean {
  return name === only || name.startsWith(`${only}-`);
}
