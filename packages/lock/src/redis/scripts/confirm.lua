-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here. Answers a higher one where it
-- has given that, or that very token, meanwhile: no node ever gives the same token twice, whatever is sent again or comes late.
-- keys: lock and fence of each resource.
-- arguments: owner, token, members, fence ttl (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'not-held'} | {'not-admitted'} | {'wrong-members'} | {'token-exhausted'}.
commands.confirm = function(keys, args)
  local owner, token, members, fence_ttl = args[1], tonumber(args[2]), args[3], args[4]

  local node, refusal = admitted_node(members)
  if not node then return refusal end
  for _, lock in ipairs(every(2, keys, 1)) do
    if redis.call('GET', lock) ~= owner then return {'not-held'} end
  end
  local fences = every(2, keys, 2)
  local raised = math.max(token, highest_given(node, fences) + 1)
  if raised > TOKEN_MAX then return {'token-exhausted'} end
  return grant(node, fences, raised, fence_ttl)
end
