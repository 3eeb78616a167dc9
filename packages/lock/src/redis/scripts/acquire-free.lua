-- ACQUIRE where it is alone and nothing is in its way: one resource, free, with nobody in line. Does what acquire.lua does then, in a
-- straight line: Lua makes every function anew when a script runs, and all that follows is as much work again. Whatever is not as it
-- mostly is, acquire.lua decides.
if #KEYS == 4 then
  local NODE, LEDGER, EARLIER, LINE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
  local node = redis.call('HMGET', NODE,
    'history', 'members', 'max_ttl', 'longest', 'max', 'floor', 'opened', 'gen', 'incarnation', 'roster')
  local role, replid = string.match(redis.call('INFO', 'replication'), 'role:(%a+).-master_replid:(%x+)')
  local ttl, time = tonumber(ARGV[4]), redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local age = now - (node[7] or now + 1)
  local entry = redis.call('HGET', LEDGER, LINE)
    or redis.call('HEXISTS', LEDGER, 'opened') == 1 and redis.call('HGET', EARLIER, LINE)
  local last = entry and #entry == 16 and tonumber(entry)
  if role == 'master' and node[1] == replid and node[2] == ARGV[1] and ttl <= tonumber(node[3]) and ttl <= tonumber(node[4])
    and age >= 0 and age <= tonumber(ARGV[5]) and (last or not entry) and redis.call('EXISTS', LINE) == 0 then
    local max = tonumber(node[5])
    local token = (last and math.max(last, tonumber(node[6])) or max) + 1
    if token <= 9007199254740991 then
      local text = string.format('%.0f', token)
      if token > max then redis.call('HSET', NODE, 'max', text) end
      redis.call('HSET', LEDGER, LINE, string.format('%015.0f %016.0f ', now + ttl, token) .. ARGV[3])
      return 'granted ' .. text .. ' 1\n' .. node[8] .. ' ' .. node[9] .. ' ' .. node[10]
    end
  end
end
