import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PAGES = globSync(
  ['*.md', 'docs/**/*.md', '{packages,examples}/*/README.md', 'bench/results/*.md'],
  { cwd: ROOT, exclude: ['docs/reference/**'] },
);

const FILES = globSync(['{packages,examples,test,bench,tools,bin,docs}/**/*.*'], {
  cwd: ROOT,
  exclude: (name) => ['node_modules', 'dist'].includes(name),
});
const NAMES = new Set(FILES.map((file) => basename(file)));

const read = (page: string): string => readFileSync(join(ROOT, page), 'utf8');

/** Returns the page without its blocks of code. */
const prose = (page: string): string => read(page).replaceAll(/^ *```.*?^ *```/gms, '');

/** Returns GitHub's anchor of a heading. */
function anchorOf(heading: string): string {
  const words = heading.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, '');
  return words.trim().replaceAll(' ', '-');
}

const anchorsOf = (page: string): string[] =>
  [...prose(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => anchorOf(heading));

test.each(PAGES)('%s: every link has a target', (page) => {
  const links = [...prose(page).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)];
  const broken = links.flatMap(([, path = '', anchor]) => {
    const target = path === '' ? page : join(dirname(page), path);
    if (!existsSync(join(ROOT, target))) return [`${path} does not exist`];
    if (anchor === undefined || !target.endsWith('.md')) return [];
    return anchorsOf(target).includes(anchor) ? [] : [`${target} has no heading #${anchor}`];
  });
  expect(broken).toEqual([]);
});

test.each(PAGES)('%s: every named file of the repository exists', (page) => {
  const quoted = [...prose(page).matchAll(/`([^`\n]+)`/g)].map(([, text = '']) => text);
  const paths = quoted.flatMap(
    (text) => text.match(/^(packages|examples|test|bench|docs|tools)\/[\w./-]+$/g) ?? [],
  );
  const names = quoted.flatMap((text) => text.match(/^[\w-]+(\.test\.ts|\.lua|\.mjs)$/g) ?? []);
  expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(names.filter((name) => !NAMES.has(name))).toEqual([]);
});

test('the index links to every page of the documentation', () => {
  const targets = (page: string): string[] =>
    [...read(page).matchAll(/\]\(([^)#:]+)/g)].map(([, path = '']) => join(dirname(page), path));
  const index = new Set([...targets('docs/README.md'), ...targets('docs/decisions/README.md')]);
  const pages = PAGES.filter((page) => page.startsWith('docs/') && page !== 'docs/README.md');
  expect(pages.filter((page) => !index.has(page)).map((page) => relative('docs', page))).toEqual(
    [],
  );
});
