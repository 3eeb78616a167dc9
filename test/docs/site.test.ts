import { execFile } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BASE = '/fenced/';

const parts = new AsyncDisposableStack();
let site: string;
let pages: ReadonlyMap<string, string>;

beforeAll(async () => {
  site = parts.use(await mkdtempDisposable(join(tmpdir(), 'fenced-site-'))).path;
  const args = ['build', 'docs', '--base', BASE, '--outDir', site];
  await promisify(execFile)(join(ROOT, 'node_modules/.bin/vitepress'), args, { cwd: ROOT });
  const files = globSync('**/*.html', { cwd: site });
  pages = new Map(files.map((file) => [file, readFileSync(join(site, file), 'utf8')]));
});
afterAll(() => parts.disposeAsync());

const routeOf = (page: string): string =>
  page.replace(/(README)?\.md$/, (_, readme) => {
    return `${readme ? 'index' : ''}.html`;
  });

test('every page of the documentation is on the site, with its text', () => {
  const sources = globSync(['README.md', 'docs/**/*.md'], { cwd: ROOT });
  for (const source of sources) {
    const heading = /^# (.*)$/m.exec(readFileSync(join(ROOT, source), 'utf8'))?.[1] ?? '';
    const html = pages.get(routeOf(source)) ?? '';
    const shown = /<h1[^>]*>(.*?) <a /.exec(html)?.[1]?.replaceAll(/<[^>]*>/g, '');
    expect(shown?.replaceAll('&#39;', "'"), source).toBe(heading.replaceAll('`', ''));
  }
});

test('the navigation has the rows of docs/README.md, in their order', () => {
  const index = readFileSync(join(ROOT, 'docs/README.md'), 'utf8');
  const rows = [...index.matchAll(/^## (.*)|^\| \[(.*?)\]/gm)];
  const [navigation] =
    /<nav[^>]*id="VPSidebarNav".*?<\/nav>/s.exec(pages.get('index.html') ?? '') ?? [];
  const texts = [...(navigation?.matchAll(/ class="text"[^>]*>(.*?)</g) ?? [])];
  expect(texts.map(([, text]) => text)).toEqual(
    rows.map(([, section, page]) => section ?? page?.replaceAll('`', '')),
  );
});

test('every link inside of the site has a target', () => {
  const dead = [...pages].flatMap(([file, html]) => {
    const links = [...html.matchAll(/ (?:href|src)="(?!\w+:)([^"#]*)(?:#([^"]*))?"/g)];
    return links.flatMap(([link, path = '', anchor]) => {
      const target = path === '' ? file : path.replace(BASE, '').replace(/(^|\/)$/, '$1index.html');
      const isThere = (path === '' || path.startsWith(BASE)) && existsSync(join(site, target));
      const hasAnchor =
        anchor === undefined || pages.get(target)?.includes(` id="${decodeURIComponent(anchor)}"`);
      return isThere && hasAnchor ? [] : [`${file}:${link}`];
    });
  });
  expect(pages.size).toBeGreaterThan(40);
  expect(dead).toEqual([]);
});

test('a page asks no other server for anything', () => {
  const requests = [...pages].flatMap(([file, html]) =>
    [
      ...html.matchAll(
        /<(?:link|script|img|iframe|source)\b[^>]* (?:href|src|srcset)="(?:\w+:)?\/\/[^>]*/g,
      ),
    ].map(([tag]) => `${file}: ${tag}`),
  );
  const styles = globSync('**/*.css', { cwd: site }).filter((file) => {
    return /url\(["']?(?:\w+:)?\/\/|@import/.test(readFileSync(join(site, file), 'utf8'));
  });
  expect([...requests, ...styles]).toEqual([]);
});
