-- Several RELEASEs of one resource each, similar to acquire-at-once.lua.
-- `release.lua` decides the rest: locks of another owner, free locks, and locks with waiters.
--
-- - owners: the first argument of each call
-- - values: must be empty; see release.lua for the other arguments
-- - lines: the wait queue of each resource
-- - own: receives replies, by the place of the call
-- - returns: nothing, or {"times": count, "like": ["released"]} as JSON, see calls.lua
at_once.release = function(owners, values, lines, own)
  local count = #lines
  if #values > 0 then return end
  local n, entries, seen = 0, {}, {}
  local found = redis.call('HMGET', NODE, 'members', unpack(lines))
  if found[1] ~= MEMBERS then return end
  for i, line in ipairs(lines) do
    local entry, owner = found[i + 1], owners[i]
    local is_own = entry and #entry == OWNER_AT - 1 + #owner and string.find(entry, owner, OWNER_AT, true)
    if is_own and not seen[line] and string.byte(entry, WAITING_AT) == BLANK then
      n, seen[line], own[i] = n + 2, true, '["released"]'
      entries[n - 1], entries[n] = line, string.sub(entry, TOKEN_AT, OWNER_AT - 2)
    end
  end
  if n == 0 then return end
  write_though_full()
  redis.call('HSET', NODE, unpack(entries))
  if n == 2 * count then return '{"times":' .. count .. ',"like":["released"]}' end
end
