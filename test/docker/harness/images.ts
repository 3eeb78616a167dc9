import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, realpath, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { makeTemporaryFolder } from '../../../packages/testbed/src/guardian.js';
import { findPostgres, findProgram, findRedis } from '../../../packages/testbed/src/programs.js';

const run = promisify(execFile);
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/** Does the part of the official image's first start that the testbed relies on. */
const POSTGRES_ENTRYPOINT = `#!/bin/sh
set -e
printf %s "$POSTGRES_PASSWORD" > /data/password
/postgres/bin/initdb -D /data/db -U postgres --pwfile=/data/password $POSTGRES_INITDB_ARGS
echo 'host all all all password' >> /data/db/pg_hba.conf
program=$1; shift
exec "/postgres/bin/$program" -D /data/db -c 'listen_addresses=*' "$@"
`;

/** Makes an image with this machine's Redis, without a registry. Returns the name of the image. */
export async function importRedis(): Promise<string> {
  const redis = found(findRedis());
  await using folder = await makeTemporaryFolder('image');
  await copyWithLibraries([redis], folder.path);
  return await importImage(folder.path, 'fenced/redis:local', []);
}

/**
 * Makes an image as the official one of Postgres, from this machine's programs. Returns its name.
 */
export async function importPostgres(): Promise<string> {
  const home = found(findPostgres());
  await using folder = await makeTemporaryFolder('image');
  const root = folder.path;
  await copyWithLibraries(
    ['/bin/sh', ...['initdb', 'postgres'].map((name) => join(home, 'bin', name))],
    root,
    home,
  );
  await run('cp', ['-RP', home, join(root, 'postgres')]);
  await mkdir(join(root, 'etc'));
  await writeFile(join(root, 'etc', 'passwd'), 'nobody:x:65534:65534::/:/bin/sh\n');
  for (const name of ['data', 'tmp']) {
    await mkdir(join(root, name));
    await chmod(join(root, name), 0o1777);
  }
  await writeFile(join(root, 'entrypoint'), POSTGRES_ENTRYPOINT, { mode: 0o755 });
  return await importImage(root, 'fenced/postgres:local', [
    'USER 65534',
    'ENTRYPOINT ["/entrypoint"]',
  ]);
}

/** Makes an image like Node's official one, with this machine's Node and npm. Returns its name. */
export async function importNode(): Promise<string> {
  await using folder = await makeTemporaryFolder('image');
  const root = folder.path;
  const programs = ['sh', 'cat', 'cp', 'dirname', 'ln', 'mkdir', 'rm', 'sed', 'uname'];
  await copyWithLibraries(
    [process.execPath, '/usr/bin/env', ...programs.map((name) => `/bin/${name}`)],
    root,
    dirname(process.execPath),
  );
  // pnpm's program loads this library.
  await run('sh', ['-c', 'cp --parents --dereference /lib/*/librt.so.1 "$1"', 'sh', root]);
  const npm = await realpath(found(findProgram('npm')));
  await run('cp', ['--parents', '-RP', dirname(dirname(npm)), CERTIFICATES, root]);
  const bin = join(root, 'usr', 'local', 'bin');
  await mkdir(bin, { recursive: true });
  await copyFile(process.execPath, join(bin, 'node'));
  await symlink(join(dirname(npm), 'npx-cli.js'), join(bin, 'npx'));
  await mkdir(join(root, 'tmp'));
  await chmod(join(root, 'tmp'), 0o1777);
  return await importImage(root, 'fenced/node:local', [
    'ENV PATH=/usr/local/bin:/usr/bin:/bin',
    `ENV NODE_EXTRA_CA_CERTS=${CERTIFICATES}`,
  ]);
}

/**
 * Copies programs and their shared libraries to the same paths below `root`, except from `except`.
 */
async function copyWithLibraries(
  programs: readonly string[],
  root: string,
  except?: string,
): Promise<void> {
  const { stdout } = await run('ldd', programs);
  const libraries = stdout.match(/\/\S+(?= \(0x)/g) ?? [];
  const files = new Set([...programs, ...libraries]);
  const wanted = [...files].filter((file) => except === undefined || !file.startsWith(except));
  await run('cp', ['--parents', '--dereference', ...wanted, root]);
  await chmod(root, 0o755);
}

async function importImage(
  root: string,
  name: string,
  changes: readonly string[],
): Promise<string> {
  const options = changes.flatMap((change) => ['--change', change]);
  await run('sh', [
    '-c',
    'root=$1; shift; tar -C "$root" -c . | docker import "$@"',
    'sh',
    root,
    ...options,
    '-',
    name,
  ]);
  return name;
}

function found(path: string | undefined): string {
  if (path === undefined) throw new Error('the program is missing; `npm test` installs it');
  return path;
}
