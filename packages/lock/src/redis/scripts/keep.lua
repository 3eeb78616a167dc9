-- Holds a lease here, too, that a majority of other nodes has granted. Nobody else can win as long as that lasts, so no line
-- is in its way; only what an attempt that has not been decided yet has taken is, until it gives that up. A higher token than the
-- lease's may be that of another lease: this one would have been lost in between, and is not to be held where that shows.
-- keys: lock and fence of each resource.
-- arguments: owner, ttl (ms), token, fence ttl (ms).
-- Reply: {'granted', token, voter} | {'not-held'} | {'not-admitted'} | {'wrong-members'} | {'ttl-too-long', max_ttl}.
commands.keep = function(from, to, owner, ttl, token, fence_ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local highest = tonumber(token)
  for i = from, to, 2 do
    local holder, last = redis.call('GET', KEYS[i]), redis.call('GET', KEYS[i + 1])
    if holder and holder ~= owner then return {'not-held'} end
    if last and tonumber(last) > tonumber(token) then return {'not-held'} end
    highest = math.max(highest, highest_given(KEYS[i + 1]))
  end
  for i = from, to, 2 do
    local lock = KEYS[i]
    if redis.call('GET', lock) ~= owner or redis.call('PTTL', lock) < tonumber(ttl) then redis.call('SET', lock, owner, 'PX', ttl) end
  end
  note_ttl(ttl)
  return grant(highest, fence_ttl, from + 1, to, 2)
end
