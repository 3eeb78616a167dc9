-- Several RELEASEs of one resource each. Does the same as release.lua, but reads all records
-- together, and writes all of them together.
--
-- If it returns nothing, `own` has the replies of the calls that it decided. `release.lua` decides
-- the other calls: those for locks of another owner, free locks, and locks with waiters.
--
-- - owners: the first argument of each call
-- - values: must be empty; see release.lua for the other arguments
-- - queues: the wait queue of each resource
-- - own: receives replies, by the place of the call
-- - returns: nothing, or {"times": count, "like": ["released"]} as JSON, see calls.lua
at_once.release = function(owners, values, queues, own)
  local count = #queues
  if #values > 0 then return end
  local n, fields, seen = 0, {}, {}
  local found = redis.call('HMGET', NODE, 'members', unpack(queues))
  if found[1] ~= MEMBERS then return end
  for i, queue in ipairs(queues) do
    local record, owner = found[i + 1], owners[i]
    local is_own = record and #record == OWNER_AT - 1 + #owner and string.find(record, owner, OWNER_AT, true)
    if is_own and not seen[queue] and string.byte(record, WAITING_AT) == BLANK then
      n, seen[queue], own[i] = n + 2, true, '["released"]'
      fields[n - 1], fields[n] = queue, string.sub(record, TOKEN_AT, OWNER_AT - 2)
    end
  end
  if n == 0 then return end
  write_though_full()
  redis.call('HSET', NODE, unpack(fields))
  if n == 2 * count then return '{"times":' .. count .. ',"like":["released"]}' end
end
