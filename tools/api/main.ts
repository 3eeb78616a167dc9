import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Application, type ProjectReflection, ReflectionKind } from 'typedoc';
import { readCommandLine, UsageError } from '../../packages/testbed/src/command-line.ts';

const USAGE = `npm run docs:api -- [--out FOLDER]

Writes the API reference: a page of Markdown for each entry point of the packages, from their
docstrings. FOLDER is docs/reference by default, and is emptied before.

Exit code: 0 if there is no warning; 1 otherwise.`;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDERS = ['lock', 'fenced-store', 'client', 'gateway'];

const { out } = readCommandLine(USAGE, () => {
  const options = { out: { type: 'string', default: join(ROOT, 'docs/reference') } } as const;
  const { values } = parseArgs({ options });
  if (values.out === '') throw new UsageError('--out needs a folder');
  return values;
});

/** The source files of the public entry points, with their names: `@fenced/lock/postgres` … */
const entries = FOLDERS.flatMap(entriesOf);

/** Options of the plugin, which the type of TypeDoc's own options does not have. */
const MARKDOWN = {
  outputFileStrategy: 'modules',
  hideBreadcrumbs: true,
  hidePageHeader: true,
  parametersFormat: 'table',
  interfacePropertiesFormat: 'table',
  useCodeBlocks: true,
};

const app = await Application.bootstrapWithPlugins({
  plugin: ['typedoc-plugin-markdown'],
  tsconfig: join(ROOT, 'tools/api/tsconfig.json'),
  entryPoints: entries.map(({ file }) => file),
  out,
  readme: 'none',
  name: 'API reference',
  disableSources: true,
  excludePrivate: true,
  excludeExternals: true,
  validation: { notExported: false, invalidLink: true, notDocumented: false },
  logLevel: 'Warn',
  ...MARKDOWN,
});

const project = await app.convert();
if (project) {
  for (const module of project.getReflectionsByKind(ReflectionKind.Module))
    module.name = entries.find(({ path }) => path === module.name)?.name ?? module.name;
  resolveLinks(project);
  app.validate(project);
  await app.generateOutputs(project);
}
if (!project || app.logger.hasErrors() || app.logger.hasWarnings()) process.exitCode = 1;

/** Resolves links in comments to classes, even if the file of the comment does not import them. */
function resolveLinks(project: ProjectReflection): void {
  const classes = project.getReflectionsByKind(ReflectionKind.Class);
  for (const { comment } of Object.values(project.reflections)) {
    const texts = [comment?.summary ?? [], ...(comment?.blockTags.map((tag) => tag.content) ?? [])];
    for (const part of texts.flat()) {
      if (part.kind !== 'inline-tag' || part.target !== undefined) continue;
      const target = classes.find(({ name }) => name === part.text);
      if (target) part.target = target;
    }
  }
}

function entriesOf(folder: string): { file: string; path: string; name: string }[] {
  const manifest = JSON.parse(readFileSync(join(ROOT, `packages/${folder}/package.json`), 'utf8'));
  return Object.entries<string>(manifest.exports)
    .filter(([entry, target]) => target.endsWith('.js') && entry !== './internal')
    .map(([entry, target]) => {
      const [, module = ''] = /^\.\/dist\/(.*)\.js$/.exec(target) ?? [];
      return {
        file: join(ROOT, `packages/${folder}/src/${module}.ts`),
        // The name that TypeDoc gives to the module.
        path: `${folder}/src/${module}`.replace(/\/index$/, ''),
        name: `${manifest.name}${entry.slice(1)}`,
      };
    });
}
