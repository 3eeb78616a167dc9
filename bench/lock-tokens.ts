import type { Redis } from 'ioredis';
import { majority, newOwner } from './lock-raw.ts';
import { openSocket } from './lock-socket.ts';
import type { Acquire, LockSettings } from './lock-subject.ts';

const NODE = 'bench-tokens:node';
const MEMBERS = 'the digest of all names';
const FIELDS = ['history', 'generation', 'roster', 'floor', 'max', 'members', 'max_ttl', 'longest'];

/**
 * Locks each key for its owner and TTL; the TTL 0 releases. For a free lock it does the work of our
 * scripts. For a held lock it does nothing.
 */
const SCRIPT = `local flags, node, till = {}
for i, key in ipairs(KEYS) do
  local owner, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local queue = 'queue:' .. key
  local record = redis.call('HGET', '${NODE}', queue)
  if ttl ~= '0' then
    if not node then
      node = redis.call('HMGET', '${NODE}', '${FIELDS.join("', '")}')
      local info = redis.call('INFO', 'replication')
      local isOwn = string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. node[1], 1, true)
      if not isOwn or node[6] ~= '${MEMBERS}' then return '' end
    end
    flags[i] = '0'
    if tonumber(ttl) <= tonumber(node[7]) and (not record or #record == 16) and redis.call('EXISTS', queue) == 0 then
      local max = tonumber(node[5])
      local token = (record and math.max(tonumber(record), tonumber(node[4])) or max) + 1
      local text = string.format('%.0f', token)
      if not till then
        local time = redis.call('TIME')
        till = string.format('%015.0f ', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ttl))
      end
      if token > max then node[5] = text end
      redis.call('HSET', '${NODE}', 'max', node[5], queue, till .. text .. ' ' .. owner)
      flags[i] = '1'
    end
  else
    local isOwn = record and string.sub(record, 34) == owner and redis.call('EXISTS', queue) == 0
    flags[i] = isOwn and redis.call('HSET', '${NODE}', queue, string.sub(record, 17, 32)) and '1' or '0'
  end
end
return table.concat(flags)`;

/**
 * The least cost of tokens, votes and a wait queue over ioredis, if all nodes are asked. This is a
 * floor, not a lock: tokens stay on the nodes, and it has no time limits, waiters or failure
 * handling.
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

/** Does the same over hand-written RESP, with all calls of a tick in one script. */
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
