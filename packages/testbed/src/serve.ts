import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from './command-line.js';
import { startLocalRedis } from './local-redis.js';
import { startPostgres } from './postgres.js';
import { startS3 } from './s3.js';
import { makeBucket } from './s3-address.js';

const USAGE = `npm run servers -- FILE

Starts servers for a first try, and writes their addresses to FILE. They and their data end with this process.

  gateway.yaml   any name but the next: Redis and S3, as the configuration of a gateway
  servers.env    a name that ends in .env: Redis, S3 and Postgres, as environment variables for examples/`;

const BUCKET = 'documents';
const file = readCommandLine(USAGE, () => {
  const [name, ...more] = parseArgs({ allowPositionals: true }).positionals;
  if (name === undefined || more.length > 0) throw new UsageError('one FILE is expected');
  return name;
});
// Keeps this process alive, because its servers and listeners for signals do not.
const alive = setInterval(() => undefined, 2 ** 30);
const ended = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
await using redis = await startLocalRedis(3);
await using s3 = await startS3();
await makeBucket(s3, BUCKET);
const isEnv = file.endsWith('.env');
await using postgres = isEnv ? await startPostgres() : null;
const config = `redis:
  nodes:
${redis.nodes.map(({ name, url }) => `    - { name: ${name}, url: "${url}" }`).join('\n')}
objects:
  bucket: ${BUCKET}
  endpoint: ${s3.endpoint}
  forcePathStyle: true
  region: ${s3.region}
  accessKeyId: "${s3.accessKeyId}"
  secretAccessKey: "${s3.secretAccessKey}"
`;
const env = `REDIS_URLS=${redis.nodes.map(({ url }) => url).join(',')}
DATABASE_URL=${postgres?.url}
BUCKET=${BUCKET}
AWS_ENDPOINT_URL_S3=${s3.endpoint}
AWS_REGION=${s3.region}
AWS_ACCESS_KEY_ID=${s3.accessKeyId}
AWS_SECRET_ACCESS_KEY=${s3.secretAccessKey}
`;
await writeFile(file, isEnv ? env : config, { mode: 0o600 });
const programs = [s3.program, ...(postgres ? [postgres.program] : [])];
process.stdout.write(
  `3 Redis nodes and ${programs.join(' and ')} run. ${file} has their addresses. Ctrl-C ends them.\n`,
);
await ended;
clearInterval(alive);
