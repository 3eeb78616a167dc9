-- ACQUIRE where it is alone and nothing is in its way: one resource, free, with nobody in line. Does what acquire.lua does then, in a
-- straight line: Lua makes every function anew when a script runs, and all that follows is as much work again. Whatever is not as it
-- mostly is, acquire.lua decides.
if #KEYS == 4 then
  local node = redis.call('HMGET', KEYS[1],
    'history', 'members', 'max_ttl', 'longest', 'max', 'floor', 'gen', 'incarnation', 'roster')
  local role, replid = string.match(redis.call('INFO', 'replication'), 'role:(%a+).-master_replid:(%x+)')
  local ttl = tonumber(ARGV[4])
  if role == 'master' and node[1] == replid and node[2] == ARGV[1] and ttl <= tonumber(node[3]) and ttl <= tonumber(node[4])
    and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
    local last, max = redis.call('GET', KEYS[3]), tonumber(node[5])
    local token = (last and math.max(tonumber(last), tonumber(node[6])) or max) + 1
    if token <= 9007199254740991 then
      local text = string.format('%.0f', token)
      redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
      redis.call('SET', KEYS[3], text, 'PX', ARGV[5])
      if token > max then redis.call('HSET', KEYS[1], 'max', text) end
      return 'granted ' .. text .. ' 1\n' .. node[7] .. ' ' .. node[8] .. ' ' .. node[9]
    end
  end
end
