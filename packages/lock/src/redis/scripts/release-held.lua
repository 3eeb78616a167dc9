-- RELEASE, if it is the only call, for one resource without waiters. The lease is not over by its
-- client's clock. `release.lua` decides every other case, also if memory is full.
-- It saves the same work as acquire-free.lua.
--
-- - KEYS: the node's two, then the wait queue of the resource
-- - ARGV: members, command, owner
-- - reply: released
if #KEYS == 3 and #ARGV == 3 then
  local found = redis.call('HMGET', KEYS[1], KEYS[3], 'members')
  local record = found[1]
  if record and found[2] == ARGV[1] and string.sub(record, 34) == ARGV[3] and string.sub(record, 16, 16) == ' ' then
    local done = redis.pcall('HSET', KEYS[1], KEYS[3], string.sub(record, 17, 32))
    if done == 0 then return 'released' end
  end
end
