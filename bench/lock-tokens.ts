import type { Redis } from 'ioredis';
import { majority, newOwner } from './lock-raw.ts';
import { openSocket } from './lock-socket.ts';
import type { Acquire, LockSettings } from './lock-subjects.ts';

const NODE = 'bench-tokens:node';
const MEMBERS = 'the digest of all names';
const FIELDS = ['history', 'gen', 'roster', 'floor', 'max', 'members', 'max_ttl', 'longest'];

/**
 * As the script of the raw socket: each key with its owner, and a time to live, 0 to give it back. For a lock that is free it does what
 * ours do, and for one that is not, nothing.
 */
const SCRIPT = `local flags, node = {}
for i, key in ipairs(KEYS) do
  local owner, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local lock, fence, line = 'lock:' .. key, 'fence:' .. key, 'line:' .. key
  if ttl ~= '0' then
    if not node then
      node = redis.call('HMGET', '${NODE}', '${FIELDS.join("', '")}')
      local role, replid = string.match(redis.call('INFO', 'replication'), 'role:(%a+).-master_replid:(%x+)')
      if node[6] ~= '${MEMBERS}' or role ~= 'master' or node[1] ~= replid then return '' end
    end
    flags[i] = '0'
    if tonumber(ttl) <= tonumber(node[7]) and not redis.call('GET', lock) and not redis.call('ZRANGE', line, '0', '0')[1] then
      local last, max = redis.call('GET', fence), tonumber(node[5])
      local token = (last and math.max(tonumber(last), tonumber(node[4])) or max) + 1
      local text = string.format('%.0f', token)
      redis.call('SET', lock, owner, 'PX', ttl)
      redis.call('SET', fence, text, 'PX', '86400000')
      if token > max then
        redis.call('HSET', '${NODE}', 'max', text)
        node[5] = text
      end
      flags[i] = '1'
    end
  else
    flags[i] = redis.call('GET', lock) == owner and redis.call('DEL', lock) == 1 and not redis.call('ZRANGE', line, '0', '0')[1] and '1' or '0'
  end
end
return table.concat(flags)`;

/**
 * About the least that tokens, admission and a line to be looked at cost over ioredis where all nodes are asked. A floor, not a lock: the
 * tokens stay on the nodes, and it has no time limits, waits for nobody and survives no failure.
 */
export async function openTokens(
  clients: readonly Redis[],
  { ttlMs }: LockSettings,
): Promise<Acquire> {
  await admit(clients);
  const loaded = await Promise.all(clients.map((client) => client.script('LOAD', SCRIPT)));
  const sha1 = String(loaded[0]);
  return async (resource) => {
    const owner = newOwner();
    const ask = (ms: number): Promise<boolean> =>
      majority(
        clients,
        async (client) => (await client.evalsha(sha1, 1, resource, owner, ms)) === '1',
      );
    if (!(await ask(ttlMs))) throw new Error(`held ${resource}`);
    return () => ask(0);
  };
}

/** The same over hand-written RESP, all calls of a tick in one script. */
export async function openTokensSocket(
  clients: readonly Redis[],
  settings: LockSettings,
): Promise<Acquire> {
  await admit(clients);
  return openSocket(clients, settings, SCRIPT);
}

async function admit(clients: readonly Redis[]): Promise<void> {
  const roster = clients.map(() => '1:12345678.1.1').join(',');
  const max = `${Date.now()}000`;
  for (const client of clients) {
    const history = /master_replid:(\w+)/.exec(await client.info('replication'))?.[1] ?? '';
    const values = [history, 1, roster, max, max, MEMBERS, 60_000, 60_000];
    await client.hset(NODE, Object.fromEntries(FIELDS.map((field, at) => [field, values[at]])));
  }
}
