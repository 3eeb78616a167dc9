import { join } from 'node:path';
import { makeTemporaryFolder } from './lifeline.js';
import { findProgram } from './programs.js';
import { askS3, makeAndRemoveBucket, type S3Address, type S3Keys } from './s3-address.js';
import { launch, onFreePort, untilItAnswers } from './server.js';

/** Starts MinIO on one folder; `parts` take what is to be ended. */
export async function startMinio(keys: S3Keys, parts: AsyncDisposableStack): Promise<S3Address> {
  const folder = parts.use(await makeTemporaryFolder('minio'));
  return await onFreePort(async (port) => {
    const logPath = join(folder.path, `minio-${port}.log`);
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const server = await launch({
      command: findProgram('minio') ?? 'minio',
      args: ['server', join(folder.path, 'data'), '--address', `127.0.0.1:${port}`],
      options: {
        cwd: folder.path,
        env: {
          ...process.env,
          // It keeps certificates and the like in the user's home.
          HOME: folder.path,
          MINIO_ROOT_USER: keys.accessKeyId,
          MINIO_ROOT_PASSWORD: keys.secretAccessKey,
          MINIO_BROWSER: 'off',
          MINIO_UPDATE: 'off',
        },
        endSignal: 'SIGKILL',
      },
      logPath,
    });
    parts.use(server);
    await untilItAnswers(server, () => askS3(address));
    await makeAndRemoveBucket(address);
    return address;
  });
}
