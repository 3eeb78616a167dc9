import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MemoryS3 } from '@fenced/store/testing';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { parse } from 'yaml';

/** Uses locks and stores, so that the example has something to measure. */
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
  await using s3 = await MemoryS3.start();
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
    const count = /^(fenced_\w+(?:_total|_count)(?:\{.*\})?) (\d+)$/gm;
    const counts = [...stdout.matchAll(count)].map(([, series, times]) => [series, Number(times)]);
    const write = 'fenced_store_write_count{store="s3",operation="put"';
    expect(Object.fromEntries(counts)).toEqual({
      fenced_lock_acquire_count: 1,
      'fenced_lock_events_total{what="node-refused"}': 1,
      'fenced_lock_events_total{what="readmitted"}': 1,
      'fenced_lock_events_total{what="released"}': 1,
      'fenced_store_events_total{what="probed",store="s3",reason="safe"}': 1,
      [`${write},outcome="applied",reason=""}`]: 1,
      [`${write},outcome="refused",reason="stale-token"}`]: 1,
    });
    const queries = await queriesOf('grafana/library.json', 'prometheus/library.yaml');
    expect(queries.length).toBeGreaterThan(10);
    for (const query of queries) {
      const names = query.match(/\bfenced_\w+/g) ?? [];
      expect(names, query).not.toEqual([]);
      for (const name of names) expect(stdout, query).toMatch(new RegExp(`^${name}[ {]`, 'm'));
      for (const [, label, values = ''] of query.matchAll(/(\w+)=~?"([^"]*)"/g)) {
        expect(stdout, query).toMatch(new RegExp(`[{,]${label}="`));
        for (const value of values.split('|'))
          expect(page, query).toMatch(new RegExp(`\\b${value}\\b`));
      }
    }
  } finally {
    await rm(program);
  }
});

/** Returns the queries of these files in the folder `deploy`. The YAML parser reads JSON, too. */
async function queriesOf(...files: readonly string[]): Promise<readonly string[]> {
  const texts = await Promise.all(
    files.map((file) => readFile(new URL(`../../deploy/${file}`, import.meta.url), 'utf8')),
  );
  const queries: string[] = [];
  for (const text of texts) {
    parse(text, (key, value) => {
      if (key === 'expr') queries.push(String(value));
      return value;
    });
  }
  return queries;
}
