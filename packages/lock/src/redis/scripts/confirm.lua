-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here. Answers a higher one where it
-- has given that meanwhile: a CONFIRM that fell back to EVAL, or was sent again, may come after a later one.
-- keys: lock and fence of each resource.
-- arguments: owner, token, members, fence ttl (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'not-held'} | {'not-admitted'} | {'wrong-members'}.
commands.confirm = function(keys, args)
  local owner, token, members, fence_ttl = args[1], tonumber(args[2]), args[3], args[4]

  local node, refusal = admitted_node(members)
  if not node then return refusal end
  for _, lock in ipairs(every(2, keys, 1)) do
    if redis.call('GET', lock) ~= owner then return {'not-held'} end
  end
  local fences = every(2, keys, 2)
  return grant(node, fences, math.max(token, highest_given(node, fences)), fence_ttl)
end
