import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { startPostgres, startRedis, startS3 } from '@fenced/testbed';
import { expect, test } from 'vitest';

/** The programs to paste of a package's README, in their order. */
async function programsOf(name: string): Promise<readonly string[]> {
  const file = new URL(`../../packages/${name}/README.md`, import.meta.url);
  const page = await readFile(file, 'utf8');
  return [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, program = '']) => program);
}

/** Runs a program beside this file, so that it finds the packages as a user's program does. */
async function run(program: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const file = fileURLToPath(new URL(`./pasted-${randomUUID()}.ts`, import.meta.url));
  await writeFile(file, program);
  try {
    const options = { env: { ...process.env, ...env } };
    return (await promisify(execFile)(process.execPath, [file], options)).stdout;
  } finally {
    await rm(file);
  }
}

test('the program of the README of @fenced/lock takes two leases', async () => {
  await using redis = await startRedis(3);
  const [pasted = ''] = await programsOf('lock');
  const program = redis.nodes.reduce(
    (text, { url }, at) => text.replace(`new Redis(700${at + 1})`, `new Redis('${url}')`),
    pasted,
  );
  expect(await run(program)).toBe('the token grew\n');
});

test('the S3 program of the README of @fenced/store refuses the older holder', async () => {
  await using s3 = await startS3();
  const { endpoint, region, accessKeyId, secretAccessKey } = s3;
  const bucket = `readme-${randomUUID()}`;
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
  const [program = ''] = await programsOf('fenced-store');
  const output = await run(program.replace("bucket: 'documents'", `bucket: '${bucket}'`), {
    AWS_ENDPOINT_URL_S3: endpoint,
    AWS_REGION: region,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  });
  expect(output).toBe('refused\ncount.json 34n\nreport.txt 34n\n');
});

test('the Postgres program of the README of @fenced/store writes with a token', async () => {
  await using postgres = await startPostgres();
  const [, program = ''] = await programsOf('fenced-store');
  const pool = `new pg.Pool({ connectionString: '${postgres.url}' })`;
  expect(await run(program.replace('new pg.Pool()', pool))).toBe('34n\n');
});
