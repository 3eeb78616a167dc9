import { Redis } from 'ioredis';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
const redis = await startRedis(1);
const client = new Redis(redis.nodes[0].port), r = new Redis(redis.nodes[0].port);
const lock = new Redlock({ nodes: [client] });
const REL = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end`;
r.defineCommand('rel', { numberOfKeys: 1, lua: REL });
const raw = async (k) => { const o = Math.random().toString(36); await r.set(k, o, 'PX', 10000, 'NX'); await r.rel(k, o); };
const ours = async (k) => (await lock.acquire(k, { ttlMs: 10000, waitMs: 5000 })).release();
const cpu = async () => { const i = await r.info('cpu'); return Number(/used_cpu_user:([\d.]+)/.exec(i)[1]) + Number(/used_cpu_sys:([\d.]+)/.exec(i)[1]); };
await ours('w');
const nine = async (name, f, par) => { const a = await cpu(), m = process.cpuUsage(), t = performance.now(); const N = 4000; await Promise.all(Array.from({ length: par }, async (_, i) => { for (let k = 0; k < N / par; k++) await f(name + i); })); const u = process.cpuUsage(m); console.log(name, par, 'server us/cycle', ((await cpu()) - a) / N * 1e6 | 0, 'client us/cycle', (u.user + u.system) / N | 0, 'wall', (performance.now() - t) / N * 1000 | 0); };
for (let i = 0; i < 2; i++) { for (const p of [1, 64]) { await nine('raw', raw, p); await nine('ours', ours, p); } }
process.exit();
