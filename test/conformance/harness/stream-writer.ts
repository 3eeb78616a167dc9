// Writes a stream of random MiB with the token 33, and prints its progress. It may hang at the end.
import { randomBytes } from 'node:crypto';
import { writeSync } from 'node:fs';
import { S3Client } from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';

const MIB = 2 ** 20;
const { service, bucket, key, mib, hangs } = JSON.parse(process.argv[2] ?? '');
const tell = (line: string) => writeSync(1, `${line}\n`);

async function* body(): AsyncGenerator<Uint8Array> {
  try {
    for (let at = 0; at < mib; at++) yield randomBytes(MIB);
    tell('all but the last was taken');
    if (hangs) await new Promise((resolve) => setTimeout(resolve, 2 ** 31 - 1));
  } finally {
    tell('the stream was ended');
  }
}

const client = new S3Client({ ...service, credentials: service, forcePathStyle: true });
const store = new FencedS3({ client, bucket, partBytes: 5 * MIB, partsInFlight: 3 });
const outcome = await store.put(key, body(), { token: 33 }).then(
  () => 'written',
  (error: unknown) => String(error),
);
tell(outcome);
client.destroy();
