import { Redis } from 'ioredis';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
const redis = await startRedis(5);
const lock = new Redlock({ nodes: redis.nodes.map(({port}) => new Redis(port)) });
const ours = async (k) => (await lock.acquire(k, { ttlMs: 10000, waitMs: 5000 })).release();
await ours('w');
const par = async (f) => { const t = performance.now(); const m = process.cpuUsage(); await Promise.all(Array.from({ length: 64 }, async (_, i) => { for (let k = 0; k < 100; k++) await f('p' + i); })); const u = process.cpuUsage(m); console.log(6400 / (performance.now() - t) * 1000 | 0, '/s; client us', (u.user + u.system) / 6400 | 0); };
for (let i = 0; i < 8; i++) await par(ours);
for (let i = 0; i < 2; i++) { const t = performance.now(), m = process.cpuUsage(); for (let k = 0; k < 2000; k++) await ours('w');  const u = process.cpuUsage(m); console.log('seq', (performance.now() - t) / 2, 'us', (u.user+u.system)/2000); }
process.exit();
