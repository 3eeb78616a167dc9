-- Gives the lease more time, if this node still holds every lock for its owner.
-- Never takes a lock again that is gone, and never shortens one: a holder may count on the time it had.
-- keys: the lock of each resource.
-- arguments: owner, ttl (ms), members.
-- Reply: {'extended', gen, incarnation, roster} | {'not-held'} | {'not-admitted'} | {'wrong-members'} | {'ttl-too-long', max_ttl}.
commands.extend = function(keys, args)
  local owner, ttl, members = args[1], args[2], args[3]

  local node, refusal = admitted_node(members)
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  for i = 1, #keys do
    if redis.call('GET', keys[i]) ~= owner then return {'not-held'} end
  end
  for i = 1, #keys do
    if redis.call('PTTL', keys[i]) < tonumber(ttl) then redis.call('PEXPIRE', keys[i], ttl) end
  end
  note_ttl(node, ttl)
  return {'extended', node.gen, node.incarnation, node.roster}
end
