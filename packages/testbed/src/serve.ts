import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { readCommandLine, UsageError } from './command-line.js';
import { startLocalRedis } from './local-redis.js';
import { startS3 } from './s3.js';
import { makeBucket } from './s3-address.js';

const USAGE = `npm run servers -- FILE

Starts Redis and S3 for a first try, and writes a gateway's configuration to FILE, such as gateway.yaml.
The servers and their data end with this process.`;

const BUCKET = 'documents';
const file = readCommandLine(USAGE, () => {
  const [name, ...more] = parseArgs({ allowPositionals: true }).positionals;
  if (name === undefined || more.length > 0) throw new UsageError('one FILE is expected');
  return name;
});
// Servers and signals do not keep a process alive.
const alive = setInterval(() => undefined, 2 ** 30);
const ended = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
await using redis = await startLocalRedis(3);
await using s3 = await startS3();
await makeBucket(s3, BUCKET);
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
await writeFile(file, config, { mode: 0o600 });
process.stdout.write(
  `3 Redis nodes and ${s3.program} run. ${file} has their addresses. Ctrl-C ends them.\n`,
);
await ended;
clearInterval(alive);
