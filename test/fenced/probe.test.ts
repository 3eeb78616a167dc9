import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';
import { startS3 } from '@fenced/testbed';
import { expect, test, vi } from 'vitest';
import { type Betrayal, inMemory, ScriptedServer } from '../store/harness/s3-servers.js';

// Processes start slowly on a busy machine. No test of this file measures time.
vi.setConfig({ testTimeout: 120_000 });

const bin = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));

async function fenced(args: readonly string[], keys = ['key', 'secret']) {
  const env = {
    PATH: process.env.PATH,
    AWS_ACCESS_KEY_ID: keys[0],
    AWS_SECRET_ACCESS_KEY: keys[1],
  };
  const run = promisify(execFile)(process.execPath, [bin, ...args], { env });
  return run.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({
      code,
      stdout,
      stderr,
    }),
  );
}

test('a real server is tested, the table shows its answers, and its certificate is accepted', async () => {
  await using service = await startS3();
  const { endpoint, accessKeyId, secretAccessKey } = service;
  const client = new S3Client({ ...service, credentials: service, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: 'probed' }));
  const args = ['probe', 's3://probed/some/prefix/', '--endpoint', endpoint];
  const { code, stdout, stderr } = await fenced(args, [accessKeyId, secretAccessKey]);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^create +PUT If-None-Match: \* +200 +passed$/m);
  expect(stdout).toMatch(/^create-again +PUT If-None-Match: \* +412 PreconditionFailed +passed$/m);
  expect(stdout).toMatch(/^race-of-updates +8 × PUT If-Match: .* at once +1 × 200, .*passed$/m);
  expect(stdout).toContain('s3://probed enforces the conditions that fencing needs.');
  const json = await fenced([...args, '--json'], [accessKeyId, secretAccessKey]);
  const verdict = JSON.parse(json.stdout);
  expect(verdict).toMatchObject({ safe: true, capabilities: { versionIds: 'none' } });
  const store = new FencedS3({ client, bucket: 'probed', prefix: 'some/prefix/' });
  const { checkedAtMs } = await store.probe();
  expect(checkedAtMs).toBe(verdict.capabilities.checkedAtMs);
  client.destroy();
});

test.each([
  [{ ignoresMatch: true }, 1, 'update-with-old-etag'],
  [{ checksBeforeItWrites: true }, 1, 'race-of-creates'],
  [{ ignoresOnComplete: 'all' }, 0, 'complete-race-of-creates'],
] as readonly (readonly [Betrayal, number, string])[])(
  '%j ends with %d',
  async (betrayal, code, check) => {
    await using server = await ScriptedServer.start(inMemory(betrayal));
    const found = await fenced(['probe', 's3://bucket', '--endpoint', server.endpoint]);
    expect(found.code).toBe(code);
    const verdict = code === 0 ? 'absent' : 'failed';
    expect(found.stdout).toMatch(new RegExp(`^${check} .* ${verdict}$`, 'm'));
    const json = await fenced(['probe', 's3://bucket', '--endpoint', server.endpoint, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ safe: code === 0 });
  },
);

test('a server that is down and an empty command line have exit codes of their own', async () => {
  const server = await ScriptedServer.start(() => null);
  const { endpoint } = server;
  await server[Symbol.asyncDispose]();
  const down = await fenced(['probe', 's3://bucket', '--endpoint', endpoint]);
  expect(down).toMatchObject({ code: 3, stdout: expect.stringContaining(endpoint) });
  for (const args of [
    [],
    ['prob'],
    ['toString'],
    ['probe'],
    ['probe', 'bucket'],
    ['probe', 's3://a', 's3://b'],
    ['probe', 's3://a', '--endpoint', 'nowhere'],
    ['probe', 's3://a', '--force'],
  ])
    expect(await fenced(args)).toMatchObject({ code: 64 });
  const summary = expect.stringMatching(/^ +probe +/m);
  expect(await fenced(['--help'])).toMatchObject({ code: 0, stdout: summary });
  const usage = expect.stringContaining('fenced probe');
  expect(await fenced(['probe', '--help'])).toMatchObject({ code: 0, stdout: usage });
});
