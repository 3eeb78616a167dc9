import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';
import { MemoryS3 } from '@fenced/store/testing';
import { expect, test } from 'vitest';

test('on MemoryS3, the first write needs no probe', async () => {
  await using s3 = await MemoryS3.start();
  const client = new S3Client(s3.clientConfig);
  let sent = 0;
  const counting = {
    send: (...args: Parameters<S3Client['send']>) => {
      sent++;
      return client.send(...args);
    },
  } as unknown as S3Client;
  const store = new FencedS3({ client: counting, bucket: 'documents' });
  await store.put('k', 'x', { token: 1 });
  // The certificate, the object, and the write.
  expect(sent).toBe(3);
  await store.probe({ renew: true });
  await store.put('k', 'y', { token: 1 });
  expect(await store.get('k')).toMatchObject({ body: Buffer.from('y') });
  client.destroy();
});

const PROGRAM = `
import { S3Client } from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';
import { MemoryS3 } from '@fenced/store/testing';
const s3 = await MemoryS3.start();
const client = new S3Client(s3.clientConfig);
await new FencedS3({ client, bucket: 'documents' }).probe({ renew: true });
client.destroy();
await s3[Symbol.asyncDispose]();
const endedAtMs = performance.now();
process.on('exit', () => console.log(performance.now() - endedAtMs));
`;

test('a probe leaves no timer behind, so a test runner can end', async () => {
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  const args = ['--input-type=module', '-e', PROGRAM];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd });
  // Jest complains after one second. A wait of the probe would last 7.5.
  expect(Number(stdout)).toBeLessThan(1_000);
});
