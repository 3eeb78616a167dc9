-- RELEASE, if it is the only call of the script, for one resource without waiters, whose lease is
-- not over by its client's clock. In every other case, and if memory is full, this code returns
-- nothing, and release.lua decides. Like acquire-free.lua, it runs before any function is created.
--
-- - KEYS: the node's two, then the wait queue of the resource
-- - ARGV: members, command, owner; a fourth value shows another case, see release.lua
-- - reply: released
if #KEYS == 3 and #ARGV == 3 then
  local NODE, QUEUE, MEMBERS, OWNER = KEYS[1], KEYS[3], ARGV[1], ARGV[3]
  local record, members = unpack(redis.call('HMGET', NODE, QUEUE, 'members'))
  -- A record ends with the owner, and has a blank at place 16 if nobody waits; see lock-table.lua.
  if record and members == MEMBERS and string.sub(record, 34) == OWNER and string.sub(record, 16, 16) == ' ' then
    -- The record of a free lock is the token alone. The reply is 0 if the field existed.
    local done = redis.pcall('HSET', NODE, QUEUE, string.sub(record, 17, 32))
    if done == 0 then return 'released' end
  end
end
