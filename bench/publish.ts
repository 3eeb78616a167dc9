import { readFile, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { startRedis } from '@fenced/testbed';
import type { Row } from './measure.ts';
import { byBench, markdownTable } from './report.ts';

/**
 * Writes each bench's table into a page, between `<!-- bench:name -->` and `<!-- /bench:name -->`: figures are never
 * typed by hand.
 *
 * @throws where the page has no place for one of them; it is left as it was then
 */
export async function publishTables(
  path: string,
  rows: readonly Row[],
  isQuick: boolean,
): Promise<void> {
  const conditions = await describeConditions(isQuick);
  let page = await readFile(path, 'utf8');
  for (const [bench, its] of byBench(rows)) {
    const begin = `<!-- bench:${bench} -->`;
    const end = `<!-- /bench:${bench} -->`;
    const [from, to] = [page.indexOf(begin), page.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`${path} has no ${begin} … ${end}`);
    const section = `${begin}\n${conditions}\n\n${markdownTable(its)}\n`;
    page = page.slice(0, from) + section + page.slice(to);
  }
  await writeFile(path, page);
}

/** What the figures depend on besides the code. */
async function describeConditions(isQuick: boolean): Promise<string> {
  await using redis = await startRedis(1);
  const all = cpus();
  const model = all[0]?.model.trim() || 'unknown';
  const date = new Date().toISOString().slice(0, 10);
  const warning = isQuick ? 'A quick run, which only shows that everything works. ' : '';
  return `${warning}${date}, Node ${process.versions.node}, ${redis.program}, ${all.length} × ${model}, ${process.platform}`;
}
