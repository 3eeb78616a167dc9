import { join } from 'node:path';
import { makeTemporaryFolder } from './guardian.js';
import { findProgram } from './programs.js';
import { askS3, type CrashableS3, makeAndRemoveBucket, type S3Keys } from './s3-address.js';
import { type Launch, onFreePort, startCrashable } from './server.js';

/** Starts MinIO on one folder. It ends when `parts` is disposed. */
export async function startMinio(keys: S3Keys, parts: AsyncDisposableStack): Promise<CrashableS3> {
  const folder = parts.use(await makeTemporaryFolder('minio'));
  return await onFreePort(async (port) => {
    const logPath = join(folder.path, `minio-${port}.log`);
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const program: Launch = {
      command: findProgram('minio') ?? 'minio',
      args: ['server', join(folder.path, 'data'), '--address', `127.0.0.1:${port}`],
      options: {
        cwd: folder.path,
        env: {
          ...process.env,
          // MinIO keeps certificates in the user's home.
          HOME: folder.path,
          MINIO_ROOT_USER: keys.accessKeyId,
          MINIO_ROOT_PASSWORD: keys.secretAccessKey,
          MINIO_BROWSER: 'off',
          MINIO_UPDATE: 'off',
        },
        endSignal: 'SIGKILL',
      },
      logPath,
    };
    const crash = await startCrashable(program, () => askS3(address), parts);
    await makeAndRemoveBucket(address);
    return { ...address, crash };
  });
}
