import { dirname, join } from 'node:path';
import { makeTemporaryFolder } from './lifeline.js';
import { findProgram } from './programs.js';
import { askS3, makeAndRemoveBucket, type S3Address, type S3Keys } from './s3-address.js';
import { launch, onFreePort, untilItAnswers } from './server.js';

/**
 * One request at a time. As `moto_server` starts it, moto 5.2.1 checks a condition and writes without a lock in between: of 32
 * writers under one condition two won, in 4 of 25 runs of 6 rounds.
 */
const PROGRAM = `
import sys
from werkzeug.serving import run_simple
from moto.server import DomainDispatcherApplication, create_backend_app
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
`;

/** Starts moto, AWS in memory, which takes any keys; `parts` take what is to be ended. */
export async function startMoto(keys: S3Keys, parts: AsyncDisposableStack): Promise<S3Address> {
  const folder = parts.use(await makeTemporaryFolder('moto'));
  return await onFreePort(async (port) => {
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const server = await launch({
      // The Python that moto was installed for is beside its command.
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
