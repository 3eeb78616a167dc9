import { Redis } from 'ioredis';
import { startRedis } from '@fenced/testbed';
import { readFileSync } from 'node:fs';
const redis = await startRedis(1);
const r = new Redis(redis.nodes[0].port);
const dir = 'packages/lock/src/redis/scripts/';
const files = ['node', 'line', 'acquire', 'confirm', 'extend', 'release', 'inspect', 'promise', 'admit', 'retire', 'status', 'calls'];
const all = files.map((f) => readFileSync(dir + f + '.lua', 'utf8')).join('\n');
const noinfo = all.replace(/local OWN_RUN_ID = [\s\S]*?\n\n/, "local OWN_RUN_ID = 'x'\n\n");
const cpu = async () => { const i = await r.info('cpu'); return Number(/used_cpu_user:([\d.]+)/.exec(i)[1]) + Number(/used_cpu_sys:([\d.]+)/.exec(i)[1]); };
const run = async (name, src) => { const sha = await r.script('LOAD', src); const N = 20000; const a = await cpu(); for (let j = 0; j < N / 100; j++) { const p = r.pipeline(); for (let i = 0; i < 100; i++) p.evalsha(sha, 1, 'k'); await p.exec(); } console.log(name, ((await cpu()) - a) / N * 1e6); };
for (let i = 0; i < 2; i++) {
await run('empty', 'return 1');
await run('all', all);
await run('noinfo', noinfo);
await run('info server', "return #redis.call('INFO','server')");
await run('info repl', "return #redis.call('INFO','replication')");
await run('hget', "return redis.call('HGET','k', 'x')");
await run('config', "return redis.call('CONFIG','GET', 'port')");
await run('client', "return redis.call('CLIENT','ID')");
await run('infomatch', "return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')");
await run('rolematch', "return redis.call('ROLE')");
}
process.exit();
