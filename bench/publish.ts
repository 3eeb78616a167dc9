import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { startRedis } from '@fenced/testbed';
import type { Row } from './measure.ts';
import { byBench, markdownTable } from './report.ts';

/**
 * Writes each bench's table into a page, between `<!-- bench:name -->` and `<!-- /bench:name -->`.
 * So figures are never typed by hand.
 *
 * @param path a page, or a folder of pages
 * @throws if no page has the markers of a bench; then no page is changed
 */
export async function publishTables(
  path: string,
  rows: readonly Row[],
  isQuick: boolean,
): Promise<void> {
  const conditions = await describeConditions(isQuick);
  const pages = await readPages(path);
  for (const [bench, its] of byBench(rows)) {
    const begin = `<!-- bench:${bench} -->`;
    const end = `<!-- /bench:${bench} -->`;
    const page = pages.find(({ text }) => text.includes(begin) && text.includes(end));
    if (page === undefined) throw new Error(`no page in ${path} has ${begin} … ${end}`);
    const { text } = page;
    const section = `${begin}\n${conditions}\n\n${markdownTable(its)}\n`;
    page.text = text.slice(0, text.indexOf(begin)) + section + text.slice(text.indexOf(end));
  }
  for (const { file, text } of pages) await writeFile(file, text);
}

async function readPages(path: string): Promise<{ readonly file: string; text: string }[]> {
  const isFolder = (await stat(path)).isDirectory();
  const names = isFolder ? (await readdir(path)).filter((name) => name.endsWith('.md')) : [];
  const files = isFolder ? names.map((name) => join(path, name)) : [path];
  return Promise.all(files.map(async (file) => ({ file, text: await readFile(file, 'utf8') })));
}

/** Describes the machine and the versions. */
async function describeConditions(isQuick: boolean): Promise<string> {
  await using redis = await startRedis(1);
  const all = cpus();
  const model = all[0]?.model.trim() || 'unknown';
  const date = new Date().toISOString().slice(0, 10);
  const warning = isQuick ? 'A quick run, which shows only that everything works. ' : '';
  return `${warning}${date}, Node ${process.versions.node}, ${redis.program}, ${all.length} × ${model}, ${process.platform}`;
}
