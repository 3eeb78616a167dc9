import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { startRedis, startS3 } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { pageOf } from './harness/pages.js';

const FENCED = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));

test('the program of the README adds 10 to the total at each run, and its commands share the nodes', async () => {
  await using redis = await startRedis(3);
  await using s3 = await startS3();
  const { endpoint, region, accessKeyId, secretAccessKey } = s3;
  const bucket = `readme-${randomUUID()}`;
  const client = new S3Client({
    endpoint,
    region,
    credentials: { accessKeyId, secretAccessKey },
    forcePathStyle: true,
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();

  const readme = await pageOf('README.md');
  let program = /```ts\n(.*?)```/s.exec(readme)?.[1] ?? '';
  for (const [at, node] of redis.nodes.entries()) {
    program = program.replace(`new Redis(700${at + 1})`, `new Redis('${node.url}')`);
  }
  program = program.replace("bucket: 'documents'", `bucket: '${bucket}'`);
  // A file in this folder finds the packages as a user's program does.
  const file = fileURLToPath(new URL(`./pasted-${randomUUID()}.ts`, import.meta.url));
  await writeFile(file, program);
  try {
    const env = {
      ...process.env,
      AWS_ENDPOINT_URL_S3: endpoint,
      AWS_REGION: region,
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
    };
    for (const total of [10, 20]) {
      const { stdout } = await promisify(execFile)(process.execPath, [file], { env });
      expect(stdout).toBe(`the invoice's total is ${total}\n`);
    }
    const given = redis.nodes
      .map(({ url }, at) => `--redis ${'abcde'.charAt(at)}=${url}`)
      .join(' ');
    const pages = [readme, await pageOf('docs/operating-redis.md')];
    for (const page of pages) {
      // The names of the nodes are the page's, their addresses this test's.
      const [command = ''] = /(?<=npx fenced ).*--redis a=.*/.exec(page) ?? [];
      const named = command.replace(/--redis a=\S+ --redis b=\S+ --redis c=\S+/, given);
      expect(named).not.toBe(command);
      const args = named.replace('./report.sh', 'true').split(' ');
      await promisify(execFile)(process.execPath, [FENCED, ...args], { env });
    }
  } finally {
    await rm(file);
  }
});
