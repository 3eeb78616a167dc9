import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { startPostgres, startRedis, startS3 } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { blocksOf, pageOf, paste, run } from './harness/pages.js';

/** Returns the programs of a package's README, in order. */
const programsOf = async (name: string): Promise<readonly string[]> =>
  blocksOf(await pageOf(`packages/${name}/README.md`), 'ts');

/** Replaces the page's ports with those of the test's nodes. */
function onNodes(program: string, redis: Awaited<ReturnType<typeof startRedis>>): string {
  return redis.nodes.reduce(
    (text, { url }, at) => text.replace(`new Redis(700${at + 1})`, `new Redis('${url}')`),
    program,
  );
}

/** Makes a bucket. Returns it with environment variables for the AWS SDK. */
async function newBucket(s3: Awaited<ReturnType<typeof startS3>>) {
  const { endpoint, region, accessKeyId, secretAccessKey } = s3;
  const bucket = `readme-${randomUUID()}`;
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
  const env = {
    AWS_ENDPOINT_URL_S3: endpoint,
    AWS_REGION: region,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  };
  return { bucket, env };
}

test('the program of the README of @fenced/lock takes two leases', async () => {
  await using redis = await startRedis(3);
  const [program = ''] = await programsOf('lock');
  expect(await run(onNodes(program, redis))).toBe('the token grew\n');
});

test('the S3 program of the README of @fenced/store refuses the older holder', async () => {
  await using s3 = await startS3();
  const { bucket, env } = await newBucket(s3);
  const [program = ''] = await programsOf('fenced-store');
  const output = await run(program.replace("bucket: 'documents'", `bucket: '${bucket}'`), env);
  expect(output).toBe('refused\ncount.json 34n\nreport.txt 34n\n');
});

test('the Postgres program of the README of @fenced/store writes with a token', async () => {
  await using postgres = await startPostgres();
  const [, program = ''] = await programsOf('fenced-store');
  const pool = `new pg.Pool({ connectionString: '${postgres.url}' })`;
  expect(await run(program.replace('new pg.Pool()', pool))).toBe('34n\n');
});

test('the client of the README of @fenced/client is refused by the gateway of @fenced/gateway', async () => {
  await using redis = await startRedis(3);
  await using s3 = await startS3();
  const { bucket, env } = await newBucket(s3);
  const [service = ''] = await programsOf('gateway');
  const [caller = ''] = await programsOf('client');
  const program = onNodes(service, redis)
    .replace("bucket: 'documents'", `bucket: '${bucket}'`)
    .replace('port: 8080', 'port: 0');
  await using pasted = await paste(program);
  const gateway = spawn(process.execPath, [pasted.file], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(gateway, 'exit');
  try {
    const [url] = await once(gateway.stdout, 'data');
    expect(await run(caller.replace('http://127.0.0.1:8080', String(url).trim()))).toBe(
      'refused\n',
    );
  } finally {
    gateway.kill();
  }
  expect(await exited).toEqual([0, null]);
});
