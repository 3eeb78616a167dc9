import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { fileURLToPath } from 'node:url';
import { type DefaultTheme, defineConfig, type MarkdownOptions } from 'vitepress';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const REPOSITORY = 'https://github.com/fenced-locks/fenced';

const PAGES = new Set(
  globSync(
    [
      'README.md',
      'CONTRIBUTING.md',
      'SECURITY.md',
      'docs/**/*.md',
      '{packages,examples}/*/README.md',
    ],
    { cwd: ROOT },
  ),
);
const OTHERS = globSync('**/*.md', { cwd: ROOT, exclude: ['**/node_modules'] }).filter(
  (page) => !PAGES.has(page),
);

/** The route of a page. A folder's README is the folder's page. */
function routeOf(page: string): string {
  return page.replace(/README\.md$/, 'index.md');
}

/** Returns a link of a page as it is on the site. A file that is no page is shown by GitHub. */
function linkOf(page: string, href: string): string {
  if (/^(#|\w+:)/.test(href)) return href;
  const [path = '', anchor] = href.split('#');
  const target = join(dirname(page), path);
  if (!PAGES.has(target) && existsSync(join(ROOT, target)))
    return `${REPOSITORY}/blob/main/${target}`;
  return `/${routeOf(target)}${anchor === undefined ? '' : `#${anchor}`}`;
}

/** The sections of docs/README.md. Each row of their tables begins with the link of a page. */
function sidebar(): DefaultTheme.SidebarItem[] {
  const index = readFileSync(join(ROOT, 'docs/README.md'), 'utf8');
  return index
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const rows = [...section.matchAll(/^\| \[(.*?)\]\((.*?)\)/gm)];
      const items = rows.map(([, name = '', href = '']) => ({
        text: name.replaceAll('`', ''),
        link: linkOf('docs/README.md', href).replace(/(index)?\.md\b/, ''),
      }));
      return { text: section.split('\n')[0] ?? '', items };
    });
}

const withLinks: MarkdownOptions['config'] = (md) => {
  md.core.ruler.push('links', ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.attrGet('href');
      if (token.type === 'link_open' && href !== null)
        token.attrSet('href', linkOf(env.relativePath, href));
    }
  });
};

export default defineConfig({
  title: 'Fenced',
  description: 'Distributed locks that issue fencing tokens, and writers that reject stale tokens.',
  srcDir: '..',
  srcExclude: OTHERS,
  rewrites: Object.fromEntries([...PAGES].map((page) => [page, routeOf(page)])),
  markdown: {
    // Anchors as on GitHub.
    anchor: {
      slugify: (heading) =>
        heading
          .toLowerCase()
          .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
          .trim()
          .replaceAll(' ', '-'),
    },
    config: withLinks,
  },
  buildEnd: ({ outDir, site }) => {
    const args = ['packages/page/build.ts', '--out', join(outDir, 'page')];
    execFileSync(process.execPath, [...args, '--base', `${site.base}page/`], {
      cwd: ROOT,
      stdio: 'inherit',
    });
  },
  themeConfig: {
    nav: [{ text: 'Try it', link: '/page/index.html', target: '_self' }],
    sidebar: sidebar(),
    search: { provider: 'local' },
    outline: 'deep',
    socialLinks: [{ icon: 'github', link: REPOSITORY }],
  },
});
