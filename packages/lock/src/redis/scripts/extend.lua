-- Gives the lease more time, if this node still holds every lock for its owner.
-- Never takes a lock again that is gone, and never shortens one: a holder may count on the time it had.
-- keys: the line of each resource.
-- arguments: owner, ttl (ms).
-- Reply: {'extended', voter} | {'not-held'}, or what note_number replies if nobody else holds any of the locks
--        | {'not-voting'} | {'ttl-too-long', max_ttl}.
commands.extend = function(from, to, owner, ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  local tokens, ends, highest, is_lost = {}, {}, 0, false
  for i = from, to do
    local last, holder, till = entry_of(KEYS[i])
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
