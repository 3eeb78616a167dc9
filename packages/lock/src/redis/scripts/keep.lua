-- Holds a lease here, too, that a majority of other nodes has granted. Nobody else can win as long as that lasts, so no line
-- is in its way; only what an attempt that has not been decided yet has taken is, until it gives that up. A higher token than the
-- lease's may be that of another lease: this one would have been lost in between, and is not to be held where that shows.
-- keys: the line of each resource.
-- arguments: owner, ttl (ms), token, fence ttl (ms).
-- Reply: {'granted', token, voter} | {'not-held'} | {'not-admitted'} | {'ttl-too-long', max_ttl}.
commands.keep = function(from, to, owner, ttl, token, fence_ttl)
  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local highest, ends = tonumber(token), {}
  for i = from, to do
    local last, holder, till = entry_of(KEYS[i])
    if holder and holder ~= owner then return {'not-held'} end
    if last and last > tonumber(token) then return {'not-held'} end
    highest, ends[i] = math.max(highest, highest_given(last)), math.max(own_time_ms() + tonumber(ttl), till or 0)
  end
  note_ttl(ttl)
  return grant(highest, fence_ttl, from, to, owner, ends)
end
