import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { startLocalRedis } from './local-redis.js';
import { startS3 } from './s3.js';
import { makeBucket } from './s3-address.js';

/** Servers for a first try, and the least configuration of a gateway before them. They end with this process, and their data too. */
const BUCKET = 'documents';
const [file] = process.argv.slice(2);
if (file === undefined) {
  process.stderr.write('usage: npm run servers -- gateway.yaml\n');
  process.exit(64);
}
// Neither servers nor signals keep a process alive.
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
  `3 Redis nodes and ${s3.program} run, and ${file} names them. Ctrl-C ends them.\n`,
);
await ended;
clearInterval(alive);
