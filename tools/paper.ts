import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { createMarkdownRenderer } from 'vitepress';
import { CHROMIUM, installed, makeTemporaryFolder } from '../packages/testbed/dist/index.js';
import { readCommandLine } from '../packages/testbed/src/command-line.ts';

const USAGE = `npm run paper

Writes docs/paper/paper.pdf from README.md and paper.css in the same folder. Chromium prints the page.
The PDF names the SHA-256 of the two files as its creator, and a test compares it with the files.`;

const FOLDER = join(import.meta.dirname, '..', 'docs', 'paper');
const STYLES = [
  import.meta.resolve('@fontsource/stix-two-text/latin.css'),
  import.meta.resolve('@fontsource/stix-two-text/latin-italic.css'),
  pathToFileURL(join(FOLDER, 'paper.css')),
];
/** Links of the page lead there, not to files of this machine. */
const PUBLIC = 'https://github.com/fenced-locks/fenced/blob/main/docs/paper/';

readCommandLine(USAGE, () => parseArgs({}));
const [markdown, style] = await Promise.all(
  ['README.md', 'paper.css'].map((name) => readFile(join(FOLDER, name), 'utf8')),
);
const hash = createHash('sha256').update(`${markdown}${style}`).digest('hex');
const pdf = await print(await pageOf(`${markdown}`), `sources SHA-256 ${hash}`);
await writeFile(join(FOLDER, 'paper.pdf'), withoutDates(pdf), 'latin1');

async function pageOf(text: string): Promise<string> {
  const renderer = await createMarkdownRenderer(FOLDER, { typographer: true });
  const { fence } = renderer.renderer.rules;
  if (!fence) throw new Error('the renderer has no rule for blocks of code');
  // The rule of VitePress adds a button and colours.
  renderer.renderer.rules.fence = (tokens, at) =>
    `<pre>${renderer.utils.escapeHtml(tokens[at]?.content ?? '')}</pre>`;
  const title = /^# (.*)$/m.exec(text)?.[1] ?? '';
  // The renderer links the pages of the site.
  const html = renderer.render(text).replaceAll(/(?<= href="\.[^"#]*)\.html/g, '.md');
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>${title}</title>
<base href="${PUBLIC}">
${STYLES.map((href) => `<link rel="stylesheet" href="${href}">`).join('\n')}
${html}`;
}

/** Returns the PDF of a page, as latin1 text. Chromium stores its user agent as the creator. */
async function print(page: string, creator: string): Promise<string> {
  const chromium = await installed(CHROMIUM);
  await using folder = await makeTemporaryFolder('paper');
  const [html, pdf] = ['paper.html', 'paper.pdf'].map((name) => join(folder.path, name));
  await writeFile(`${html}`, page);
  await promisify(execFile)(chromium, [
    '--headless',
    // Chromium has no sandbox for root.
    ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
    `--user-data-dir=${folder.path}`,
    `--user-agent=${creator}`,
    '--no-pdf-header-footer',
    `--print-to-pdf=${pdf}`,
    `${pathToFileURL(`${html}`)}`,
  ]);
  return readFile(`${pdf}`, 'latin1');
}

/** Replaces the dates by zeros, so the same sources give the same file on the same machine. */
function withoutDates(pdf: string): string {
  return pdf.replaceAll(/(?<=\/(?:Creation|Mod)Date \(D:)[^)]*/g, (date) =>
    date.replaceAll(/\d/g, '0'),
  );
}
