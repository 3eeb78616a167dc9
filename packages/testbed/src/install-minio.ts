import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { readCommandLine } from './command-line.js';
import { cacheFolder, findProgram } from './programs.js';

const USAGE = `npm run install:minio

Builds MinIO from source, because it has no binary releases any more. Installs it outside the repository.
Takes about two minutes and 1 GiB of Go's caches. Needs Go and its module proxy.`;

readCommandLine(USAGE, () => parseArgs({}));
const here = findProgram('minio');
if (here !== undefined) process.stdout.write(`MinIO is installed already: ${here}\n`);
else if (findProgram('go') === undefined) {
  process.stderr.write(
    'MinIO is built from source, which needs Go: install it from https://go.dev/dl\n',
  );
  process.exitCode = 1;
} else {
  const folder = cacheFolder();
  mkdirSync(folder, { recursive: true });
  execFileSync(findProgram('go') ?? 'go', ['install', 'github.com/minio/minio@latest'], {
    env: { ...process.env, GOBIN: folder },
    stdio: 'inherit',
  });
  process.stdout.write(`MinIO is installed in ${folder}. The tests find it there.\n`);
}
