import { dirname, join } from 'node:path';
import { makeTemporaryFolder } from './guardian.js';
import { findProgram } from './programs.js';
import { askS3, makeAndRemoveBucket, type S3Address, type S3Keys } from './s3-address.js';
import { launch, onFreePort, untilItAnswers } from './server.js';

/**
 * Starts moto with one request at a time. `moto_server` uses threads, and moto 5.2.1 takes no lock
 * between the check of a condition and the write. With `moto_server`, two of 32 writers under one
 * condition won in 4 of 25 runs of 6 rounds.
 */
const PROGRAM = `
import sys
from werkzeug.serving import run_simple
from moto.server import DomainDispatcherApplication, create_backend_app
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
`;

/** Starts moto, an AWS mock in memory that accepts any keys. It ends when `parts` is disposed. */
export async function startMoto(keys: S3Keys, parts: AsyncDisposableStack): Promise<S3Address> {
  const folder = parts.use(await makeTemporaryFolder('moto'));
  return await onFreePort(async (port) => {
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const server = await launch({
      // moto's Python is beside its command.
      command: join(dirname(findProgram('moto_server') ?? ''), 'python3'),
      args: ['-c', PROGRAM, `${port}`],
      options: { cwd: folder.path, env: process.env, endSignal: 'SIGKILL' },
      logPath: join(folder.path, `moto-${port}.log`),
    });
    parts.use(server);
    await untilItAnswers(server, () => askS3(address));
    await makeAndRemoveBucket(address);
    return address;
  });
}
