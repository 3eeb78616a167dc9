-- Gives the lease more time, if this node still holds every lock for its owner.
-- Never takes a lock again that is gone, and never shortens one: a holder may count on the time it had.
-- keys: the lock of each resource.
-- arguments: owner, ttl (ms).
-- Reply: {'extended', voter} | {'not-held'} | {'not-admitted'} | {'wrong-members'} | {'ttl-too-long', max_ttl}.
commands.extend = function(from, to, owner, ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  for i = from, to do
    if redis.call('GET', KEYS[i]) ~= owner then return {'not-held'} end
  end
  for i = from, to do
    if redis.call('PTTL', KEYS[i]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
  end
  note_ttl(ttl)
  return {'extended', node.place}
end
