-- RELEASE where it is alone and nobody waits, as acquire-free.lua is for ACQUIRE.
if #KEYS == 4 and redis.call('EXISTS', KEYS[4]) == 0 then
  local entry, time = redis.call('HGET', KEYS[2], KEYS[4]), redis.call('TIME')
  if entry and #entry == 33 + #ARGV[3] and string.sub(entry, 34) == ARGV[3]
    and string.sub(entry, 1, 15) >= string.format('%015.0f', time[1] * 1000 + math.floor(time[2] / 1000)) then
    -- Without memory: see write_though_full.
    redis.call('HDEL', KEYS[2], '')
    redis.call('HSET', KEYS[2], KEYS[4], string.sub(entry, 17, 32))
    return 'released'
  end
end
