-- ACQUIRE, if it is the only call, for one resource that is free and has no waiters.
-- `acquire.lua` decides every other case.
--
-- It is straight-line code, because Lua creates every function anew when a script runs. Creating
-- those of the files after this one costs as much as this whole file.
--
-- - KEYS: the node's two, then the wait queue of the resource
-- - ARGV: members, command, owner, ttl (ms), fence ttl (ms)
-- - reply: granted token 1, separated by blanks; then the field `vote` on a second line
if #KEYS == 3 then
  local NODE, QUEUE = KEYS[1], KEYS[3]
  local node = redis.call('HMGET', NODE, 'history', 'members', 'max_ttl', 'longest', 'max', 'floor', 'opened', 'vote', QUEUE)
  local history, opened, info = node[1], node[7], redis.call('INFO', 'replication')
  local ttl, time = tonumber(ARGV[4]), redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local age = now - (opened or now + 1)
  local record = node[9] or redis.call('HGET', KEYS[2], QUEUE)
  local last = record and #record == 16 and tonumber(record)
  -- Tests the history like own_history in node.lua.
  if history and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. history, 1, true)
    and node[2] == ARGV[1] and ttl <= tonumber(node[3]) and ttl <= tonumber(node[4])
    and age >= 0 and age <= tonumber(ARGV[5]) and (last or not record and redis.call('EXISTS', QUEUE) == 0) then
    local max = tonumber(node[5])
    local token = (last and math.max(last, tonumber(node[6])) or max) + 1
    if token <= 9007199254740991 then
      local HALF, till = 100000000, now + ttl
      local time_low, token_low = till % HALF, token % HALF
      local taken = string.format('%07d%08d %08d%08d ', (till - time_low) / HALF, time_low, (token - token_low) / HALF, token_low)
      local text = string.sub(taken, 17, 32)
      local done = redis.pcall('HSET', NODE, 'max', token > max and text or node[5], QUEUE, taken .. ARGV[3])
      if type(done) == 'number' then return 'granted ' .. text .. ' 1\n' .. node[8] end
    end
  end
end
