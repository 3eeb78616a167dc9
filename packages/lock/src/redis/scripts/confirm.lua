-- CONFIRM: stores the token that an acquisition chose, if the acquisition still holds the locks
-- here. If this node has given that token or a higher one already, it stores and returns the next
-- higher one instead. So no node gives a token twice, even if a request is repeated or arrives
-- late.
--
-- - KEYS: the wait queue of each resource
-- - ARGV: owner, token, fence ttl (ms)
-- - replies:
--   - {'granted', token, voter} | {'not-held'}
--   - {'not-voting'} | {'token-exhausted'}
--   - a mismatch; for mismatches and `voter`, see node.lua
commands.confirm = function(from, to, owner, token, fence_ttl)
  local node, refusal = voting_node()
  if not node then return refusal end
  local raised, ends, tokens, origins = tonumber(token), {}, {}, {}
  for i = from, to do
    local last, holder, till, origin = record_of(KEYS[i])
    if holder ~= owner then return {'not-held'} end
    raised, ends[i] = math.max(raised, highest_given(last) + 1), till
    tokens[i], origins[i] = last, origin
  end
  if raised > TOKEN_MAX then return {'token-exhausted'} end
  -- Full memory must not prevent this: the locks are taken already, and only their token changes.
  write_though_full()
  for i = from, to do origins[i] = kept_origin(origins[i], tokens[i], raised) end
  return grant(raised, fence_ttl, from, to, owner, ends, origins)
end
