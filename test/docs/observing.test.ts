import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { inMemory, ScriptedServer } from '../store/harness/s3-servers.js';

/** Work that the example measures. */
const WORK = `
import { S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { FencedS3 } from '@fenced/store/s3';
import { Redis } from 'ioredis';
const redis = new Redis(process.env.REDIS_URL!);
const redlock = new Redlock({ nodes: [redis] });
const lease = await redlock.acquire('x', { ttlMs: 5_000 });
const client = new S3Client({ forcePathStyle: true });
const documents = new FencedS3({ client, bucket: 'bucket' });
await documents.put('k', '1', { token: lease.token });
await documents.put('k', '1', { token: lease.token - 1n }).catch(() => undefined);
await lease.release();
redis.disconnect();
client.destroy();
`;

test('the OpenTelemetry example of observing.md measures locks and stores', async () => {
  await using redis = await startRedis(1);
  await using s3 = await ScriptedServer.start(inMemory({}));
  const page = await readFile(new URL('../../docs/observing.md', import.meta.url), 'utf8');
  const example = /```ts\n(.*?)```/s.exec(page)?.[1] ?? '';
  // A file in this folder finds the packages as a user's program does.
  const program = fileURLToPath(new URL(`./pasted-${randomUUID()}.ts`, import.meta.url));
  await writeFile(program, `${example}${WORK}`);
  const meters = fileURLToPath(new URL('./harness/meters.mjs', import.meta.url));
  try {
    const env = {
      ...process.env,
      REDIS_URL: redis.nodes[0]?.url,
      AWS_ENDPOINT_URL_S3: s3.endpoint,
      AWS_REGION: 'us-east-1',
      AWS_ACCESS_KEY_ID: 'key',
      AWS_SECRET_ACCESS_KEY: 'secret',
    };
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', meters, program], {
      env,
    });
    const write = { name: 'fenced.store.write', store: 's3', operation: 'put' };
    expect(JSON.parse(stdout)).toEqual([
      { name: 'fenced.lock.events', what: 'node-refused' },
      { name: 'fenced.lock.events', what: 'admitted' },
      { name: 'fenced.lock.acquire' },
      { name: 'fenced.store.events', what: 'probed', store: 's3', reason: 'safe' },
      { ...write, outcome: 'applied', reason: '' },
      { ...write, outcome: 'refused', reason: 'stale-token' },
      { name: 'fenced.lock.events', what: 'released' },
    ]);
  } finally {
    await rm(program);
  }
});
