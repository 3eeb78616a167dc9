-- RELEASE, if it is the only call of the script, for one resource without waiters, whose lease is
-- not over by its client's clock. In every other case, and if memory is full, this code returns
-- nothing, and release.lua decides. Like acquire-free.lua, it runs before any function is created.
--
-- - KEYS: the node's two, then the wait queue of the resource
-- - ARGV: members, command, owner; a fourth value shows another case, see release.lua
-- - reply: released
if #KEYS == 3 and #ARGV == 3 then
  local found = redis.call('HMGET', KEYS[1], KEYS[3], 'members')
  local record = found[1]
  -- For the parts of a record, see lock-table.lua.
  if record and found[2] == ARGV[1] and string.sub(record, 34) == ARGV[3] and string.sub(record, 16, 16) == ' ' then
    local done = redis.pcall('HSET', KEYS[1], KEYS[3], string.sub(record, 17, 32))
    if done == 0 then return 'released' end
  end
end
