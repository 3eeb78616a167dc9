// Requires every entry point of every package, and takes a lease by the client of the project.
const { Redis } = require('ioredis');

const entries = {
  '@fenced/client': ['', '/protocol/path', '/protocol/problem-codes'],
  '@fenced/gateway': ['', '/config', '/credentials', '/log', '/metrics'],
  '@fenced/lock': ['', '/election', '/postgres'],
  '@fenced/store': ['', '/s3', '/postgres'],
};
for (const [name, paths] of Object.entries(entries))
  for (const path of paths)
    if (Object.keys(require(name + path)).length === 0) throw new Error(`${name}${path} is empty`);

const { Redlock } = require('@fenced/lock');
const client = new Redis(process.argv[2]);
const redlock = new Redlock({ nodes: [{ name: 'a', client }] });
redlock
  .acquire('packages', { ttlMs: 5_000, waitMs: 5_000 })
  .then((lease) => lease.release())
  .then((outcome) => process.stdout.write(`${outcome}\n`))
  .finally(() => client.disconnect());
