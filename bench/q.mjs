import { Redis } from 'ioredis';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { fork } from 'node:child_process';
if (process.argv[2] === 'child') {
  const ports = process.argv[3].split(',').map(Number);
  const lock = new Redlock({ nodes: ports.map((p) => new Redis(p)) });
  const stats = [];
  const end = Date.now() + 5000;
  await Promise.all(Array.from({ length: 5 }, async () => {
    let n = 0, longest = 0;
    while (Date.now() < end) {
      const t = performance.now();
      const lease = await lock.acquire('q', { ttlMs: 10000, waitMs: 20000 });
      longest = Math.max(longest, performance.now() - t);
      n++;
      await new Promise((r) => setTimeout(r, 5));
      await lease.release();
    }
    stats.push([n, longest]);
  }));
  process.send(stats);
  await lock.close();
  process.exit();
} else {
  const redis = await startRedis(5);
  const ports = redis.nodes.map(({ port }) => port).join(',');
  const warm = new Redlock({ nodes: redis.nodes.map(({port}) => new Redis(port)) });
  await (await warm.acquire('w', { ttlMs: 1000, waitMs: 5000 })).release();
  for (let i=0;i<3;i++) {const t=performance.now(); for (let k=0;k<500;k++) await (await warm.acquire('w', { ttlMs: 1000, waitMs: 5000 })).release(); console.log('seq ms', (performance.now()-t)/500);}
  const all = await Promise.all(Array.from({ length: 4 }, () => new Promise((res) => { const c = fork(process.argv[1], ['child', ports]); c.on('message', res); })));
  const flat = all.flat();
  console.log('per s', flat.reduce((s, [n]) => s + n, 0) / 5, 'longest', Math.max(...flat.map(([, l]) => l)), 'n', flat.map(([n]) => n).join(' '));
  const c = new Redis(redis.nodes[0].port); console.log(await c.keys('*'));
  process.exit();
}
