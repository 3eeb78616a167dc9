-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here. Answers a higher one where it
-- has given that, or that very token, meanwhile: no node ever gives the same token twice, whatever is sent again or comes late.
-- keys: the line of each resource.
-- arguments: owner, token, fence ttl (ms).
-- Reply: {'granted', token, voter} | {'not-held'} | {'not-voting'} | {'token-exhausted'}.
commands.confirm = function(from, to, owner, token, fence_ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  local raised, ends = tonumber(token), {}
  for i = from, to do
    local last, holder, till = entry_of(KEYS[i])
    if holder ~= owner then return {'not-held'} end
    raised, ends[i] = math.max(raised, highest_given(last) + 1), till
  end
  if raised > TOKEN_MAX then return {'token-exhausted'} end
  -- The attempt has the locks here already.
  write_though_full()
  return grant(raised, fence_ttl, from, to, owner, ends)
end
