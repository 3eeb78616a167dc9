// Requires every entry point of every package, and takes a lease by the client of the project.
const { Redis } = require('ioredis');

for (const name of ['client', 'gateway', 'lock', 'store'].map((name) => `@fenced/${name}`))
  for (const path of Object.keys(require(`${name}/package.json`).exports))
    if (!path.endsWith('.sql') && Object.keys(require(name + path.slice(1))).length === 0)
      throw new Error(`${name} ${path} is empty`);

const { Redlock } = require('@fenced/lock');
const client = new Redis(process.argv[2]);
const redlock = new Redlock({ nodes: [{ name: 'a', client }] });
redlock
  .acquire('packages', { ttlMs: 5_000, waitMs: 5_000 })
  .then((lease) => lease.release())
  .then((outcome) => process.stdout.write(`${outcome}\n`))
  .finally(() => client.disconnect());
