-- EXTEND: gives the lease more time, if this node still holds every lock for its owner. Each record
-- must prove that no later lease was granted here before; see is_proven in vote.lua.
-- It never takes a lock that this node has lost: only BACKFILL does, see backfill.lua.
-- It never makes a lease end earlier, because the holder may rely on the end that it knows.
--
-- - KEYS: the wait queue of each resource
-- - ARGV: owner, ttl (ms), token of the lease
-- - replies:
--   - {'extended', voter}
--   - {'not-held'}: another owner holds one of the locks
--   - {'not-held', number, voter}: a lock was lost or a record proves nothing. No other owner holds
--     any lock. For the number, see note_number in vote.lua
--   - {'not-voting'} | {'ttl-too-long', max_ttl}
--   - a mismatch; for mismatches and `voter`, see node.lua
commands.extend = function(from, to, owner, ttl, token)
  local node, refusal = voting_node()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  local tokens, ends, origins, highest, is_lost = {}, {}, {}, 0, false
  for i = from, to do
    local last, holder, till, origin = record_of(KEYS[i])
    if holder and holder ~= owner then return {'not-held'} end
    tokens[i], ends[i], origins[i] = last, till, origin
    highest = math.max(highest, highest_given(last))
    is_lost = is_lost or not holder or not is_proven(last, origin, tonumber(token))
  end
  if is_lost then return note_number(highest, from, to, owner, ends, origins, tokens) end
  write_though_full()
  note_ttl(ttl)
  for i = from, to do write(KEYS[i], tokens[i], owner, math.max(own_time_ms() + tonumber(ttl), ends[i]), origins[i]) end
  return {'extended', node.place}
end
