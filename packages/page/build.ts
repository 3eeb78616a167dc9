import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { build, type Plugin, preview } from 'vite';
import { mutants } from '../../test/simulation/mutant-list.ts';
import { type Patch, patched } from '../../test/simulation/sources.ts';
import { sources } from '../lock/src/redis/scripts.generated.ts';
import { readCommandLine } from '../testbed/src/command-line.ts';
import { fileOf } from './src/simulator/file-name.ts';

const USAGE = `npm run page -- [--out FOLDER] [--base PATH] [--serve]

Builds the interactive page: static files for any host.

  --out FOLDER   the folder of the files, emptied before (packages/page/dist)
  --base PATH    the path at which they are served (./, which is any)
  --serve        serves the page on this machine, and prints its address`;

const ROOT = fileURLToPath(new URL('.', import.meta.url));
const SIMULATOR = join(ROOT, 'src/simulator/main.ts');
const OFFLINE = join(ROOT, 'src/offline/worker.ts');
const PLATFORM = join(ROOT, 'src/simulator/platform.ts');

const { out, base, serve } = readCommandLine(USAGE, () => {
  const { values } = parseArgs({
    options: {
      out: { type: 'string', default: join(ROOT, 'dist') },
      base: { type: 'string', default: './' },
      serve: { type: 'boolean', default: false },
    },
  });
  return values;
});

await build({
  root: ROOT,
  configFile: false,
  logLevel: 'warn',
  base,
  build: { outDir: out, emptyOutDir: true, target: 'es2022' },
});
// A mutant that replaces source text has a simulator of its own.
for (const patch of new Set([null, ...mutants.map(({ patch = null }) => patch)])) {
  await buildSimulator(patch);
}
await buildOfflineWorker();
if (serve) {
  const server = await preview({ root: ROOT, configFile: false, base, build: { outDir: out } });
  server.printUrls();
}

async function buildSimulator(patch: Patch | null): Promise<void> {
  const mutant = mutants.find((one) => one.patch === patch && patch !== null);
  await build({
    root: ROOT,
    configFile: false,
    logLevel: 'warn',
    publicDir: false,
    plugins: [forBrowsers(patch)],
    build: {
      outDir: out,
      emptyOutDir: false,
      target: 'es2022',
      modulePreload: false,
      rollupOptions: {
        input: SIMULATOR,
        output: { entryFileNames: fileOf(mutant ?? null), codeSplitting: false },
      },
    },
  });
}

/** The worker knows every other file of the build. */
async function buildOfflineWorker(): Promise<void> {
  const files = globSync('**/*.*', { cwd: out }).sort();
  const hash = createHash('sha256');
  for (const file of files) hash.update(file).update(readFileSync(join(out, file)));
  await build({
    root: ROOT,
    configFile: false,
    logLevel: 'warn',
    publicDir: false,
    define: {
      FILES: JSON.stringify(['./', ...files]),
      VERSION: JSON.stringify(hash.digest('hex').slice(0, 16)),
    },
    build: {
      outDir: out,
      emptyOutDir: false,
      target: 'es2022',
      modulePreload: false,
      rollupOptions: { input: OFFLINE, output: { entryFileNames: 'offline.js' } },
    },
  });
}

/**
 * Puts the browser's platform in place of Node's, and applies a patch to the client's sources.
 * Simulated nodes run no Lua, so the name of a script's part stands for its source.
 */
function forBrowsers(patch: Patch | null): Plugin {
  const isOfClient = (id: string): boolean => id.includes('/packages/lock/src/');
  return {
    name: 'for-browsers',
    enforce: 'pre',
    resolveId: (source) =>
      source.startsWith('node:') || source.endsWith('/platform.ts') ? PLATFORM : null,
    load: (id) => {
      if (id.endsWith('/redis/scripts.generated.ts')) {
        const names = Object.keys(sources).map((name) => [name, name]);
        return `export const sources = ${JSON.stringify(Object.fromEntries(names))}`;
      }
      return patch && isOfClient(id) && id.endsWith(patch.file)
        ? patched(readFileSync(id, 'utf8'), patch)
        : null;
    },
  };
}
