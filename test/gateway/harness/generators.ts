import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder, GO, installed, PYTHON } from '@fenced/testbed';

const run = promisify(execFile);
/** Folder outside of the repository. It keeps the fetched and built programs for later runs. */
const CACHE = join(dirname(cacheFolder()), 'generators');

const PYTHON_PACKAGES = [
  ...['openapi-python-client==0.29.1', 'httpx==0.28.1', 'attrs==26.1.0'],
  'python-dateutil==2.9.0.post0',
];
const GO_VERSION = '1.26.8';
const OAPI_CODEGEN = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';

/** Generates a Python client into a folder. @returns the Python that runs it from there */
export async function generatePython(document: string, folder: string): Promise<string> {
  const home = join(CACHE, `python-${PYTHON_PACKAGES[0]}`);
  const program = (name: string): string => join(home, 'bin', name);
  await once(home, async () => {
    await run(await installed(PYTHON), ['-m', 'venv', home]);
    await run(program('pip'), ['install', '--quiet', ...PYTHON_PACKAGES]);
  });
  const target = ['--output-path', join(folder, 'fenced_client'), '--meta', 'none'];
  const { stdout, stderr } = await run(
    program('openapi-python-client'),
    ['generate', '--path', document, ...target, '--fail-on-warning'],
    // The generator calls its formatter, which is in the same folder, by name.
    { env: { ...process.env, PATH: `${join(home, 'bin')}:${process.env.PATH}` } },
  );
  if (/warning/i.test(stdout + stderr)) throw new Error(`it left something out:\n${stdout}`);
  return program('python3');
}

/** Generates a Go client into a module, and builds the module. @returns the program */
export async function generateGo(document: string, folder: string): Promise<string> {
  const { go, env } = await goToolchain();
  const generator = join(CACHE, 'oapi-codegen-2.8.2');
  await once(generator, () =>
    run(go, ['install', OAPI_CODEGEN], { env: { ...env, GOBIN: generator }, cwd: folder }),
  );
  const target = ['-package', 'fenced', '-o', join(folder, 'fenced', 'client.go')];
  await mkdir(join(folder, 'fenced'));
  await run(join(generator, 'oapi-codegen'), ['-generate', 'types,client', ...target, document]);
  await run(go, ['build', '-o', 'client', '.'], { env, cwd: folder });
  return join(folder, 'client');
}

/** Fetches the Go that the generator needs, as a module: the Go of Debian may be too old. */
async function goToolchain() {
  const bootstrap = await installed(GO);
  const home = join(CACHE, 'go');
  // An old Go downloads a module only inside of a folder with a go.mod.
  const asking = join(home, 'bootstrap');
  await mkdir(asking, { recursive: true });
  await writeFile(join(asking, 'go.mod'), 'module bootstrap\n');
  const env = {
    ...process.env,
    GOPATH: join(home, 'path'),
    GOCACHE: join(home, 'cache'),
    GOFLAGS: '-modcacherw',
    GOWORK: 'off',
  };
  const { stdout: platform } = await run(bootstrap, ['env', 'GOOS', 'GOARCH'], { env });
  const [os, arch] = platform.trim().split('\n');
  const name = `golang.org/toolchain@v0.0.1-go${GO_VERSION}.${os}-${arch}`;
  const download = ['mod', 'download', '-json', name];
  const { stdout } = await run(bootstrap, download, { env, cwd: asking });
  const { Dir: root } = JSON.parse(stdout) as { Dir: string };
  // Go unpacks modules without the execute permission.
  const tools = join(root, 'pkg', 'tool', `${os}_${arch}`);
  for (const one of [join(root, 'bin'), tools])
    for (const file of await readdir(one)) await chmod(join(one, file), 0o555);
  return {
    go: join(root, 'bin', 'go'),
    env: { ...env, GOROOT: root, GOTOOLCHAIN: 'local', CGO_ENABLED: '0' },
  };
}

/** Makes a folder, unless an earlier run has finished it. */
async function once(folder: string, make: () => Promise<unknown>): Promise<void> {
  const mark = join(folder, '.whole');
  if (existsSync(mark)) return;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await make();
  await writeFile(mark, '');
}
