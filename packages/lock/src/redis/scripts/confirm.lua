-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here. Answers a higher one where it
-- has given that, or that very token, meanwhile: no node ever gives the same token twice, whatever is sent again or comes late.
-- keys: lock and fence of each resource.
-- arguments: owner, token, fence ttl (ms).
-- Reply: {'granted', token, voter} | {'not-held'} | {'not-admitted'} | {'wrong-members'} | {'token-exhausted'}.
commands.confirm = function(from, to, owner, token, fence_ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  local raised = tonumber(token)
  for i = from, to, 2 do
    if redis.call('GET', KEYS[i]) ~= owner then return {'not-held'} end
    raised = math.max(raised, highest_given(KEYS[i + 1]) + 1)
  end
  if raised > TOKEN_MAX then return {'token-exhausted'} end
  return grant(raised, fence_ttl, from + 1, to, 2)
end
