import { join } from 'node:path';
import { makeTemporaryFolder } from './lifeline.js';
import { findProgram } from './programs.js';
import { askS3, makeAndRemoveBucket, type S3Address, type S3Keys } from './s3-address.js';
import { launch, onFreePort, untilItAnswers } from './server.js';

/** Starts moto, AWS in memory, which takes any keys; `parts` take what is to be ended. */
export async function startMoto(keys: S3Keys, parts: AsyncDisposableStack): Promise<S3Address> {
  const folder = parts.use(await makeTemporaryFolder('moto'));
  return await onFreePort(async (port) => {
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const server = await launch({
      command: findProgram('moto_server') ?? 'moto_server',
      args: ['--host', '127.0.0.1', '--port', `${port}`],
      options: { cwd: folder.path, env: process.env, endSignal: 'SIGKILL' },
      logPath: join(folder.path, `moto-${port}.log`),
    });
    parts.use(server);
    await untilItAnswers(server, () => askS3(address));
    await makeAndRemoveBucket(address);
    return address;
  });
}
