-- Several RELEASEs of one resource each, as acquire-at-once.lua. What somebody else holds, or nobody, is left to release.lua.
at_once.release = function(run, from, replies)
  local KEYS_EACH, VALUES_EACH = 1, 1
  local count, before = run[4], #replies
  if run[2] ~= KEYS_EACH or run[3] ~= VALUES_EACH then return false end

  local lines = {unpack(KEYS, from, from + count - 1)}
  if redis.call('EXISTS', unpack(lines)) > 0 then return false end
  local n, entries, seen = 0, {}, {}
  for i, entry in ipairs(redis.call('HMGET', LEDGER, unpack(lines))) do
    local line, owner = lines[i], run[4 + i]
    local is_own = entry and #entry == OWNER_AT - 1 + #owner and string.find(entry, owner, OWNER_AT, true)
    if is_own and not is_over(entry) and not seen[line] then
      n, seen[line], replies[before + i] = n + 2, true, '["released"]'
      entries[n - 1], entries[n] = line, string.sub(entry, TOKEN_AT, OWNER_AT - 2)
    end
  end
  if n == 0 then return false end
  redis.call('HSET', LEDGER, unpack(entries))
  return true
end
