-- EXTEND: gives the lease more time, if this node still holds every lock for its owner.
-- It never takes a lock that this node has lost: only BACKFILL does, see backfill.lua.
-- It never makes a lease end earlier, because the holder may rely on the end that it knows.
--
-- - KEYS: the wait queue of each resource
-- - ARGV: owner, ttl (ms)
-- - replies:
--   - {'extended', voter}
--   - {'not-held'}: another owner holds one of the locks
--   - {'not-held', number, voter}: a lock was lost, and no other owner holds any of them; for the
--     number, see note_number in vote.lua
--   - {'not-voting'} | {'ttl-too-long', max_ttl}
--   - a mismatch; for mismatches and `voter`, see node.lua
commands.extend = function(from, to, owner, ttl)
  local node, refusal = voting_node()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  local tokens, ends, highest, is_lost = {}, {}, 0, false
  for i = from, to do
    local last, holder, till = record_of(KEYS[i])
    if holder and holder ~= owner then return {'not-held'} end
    tokens[i], ends[i] = last, till
    highest, is_lost = math.max(highest, highest_given(last)), is_lost or not holder
  end
  if is_lost then return note_number(highest, from, to, owner, ends) end
  write_though_full()
  note_ttl(ttl)
  for i = from, to do write(KEYS[i], tokens[i], owner, math.max(own_time_ms() + tonumber(ttl), ends[i])) end
  return {'extended', node.place}
end
