-- Holds a lease here, too, that a majority of other nodes holds. Nobody else can win as long as that lasts, so no line is in
-- its way; only what an attempt that has not been decided yet has taken is, until it gives that up.
-- Invariant: a lock is taken here only if nothing was granted for its resource that could belong to a lease after this one.
-- That is so in two cases, and in no other:
--   * No token above the lease's can have been given here. A later lease has a higher one, on each node that granted it. If
--     the record is forgotten, or of another incarnation, only `max` and `floor` are known to be above what was given.
--   * No token above a number can have been given here that this very incarnation told, before the lease was last extended.
--     Each grant after that is above the number. The number of another incarnation says nothing. See writeBack in holding.ts.
-- keys: the line of each resource.
-- arguments: owner, ttl (ms), token, fence ttl (ms); if the token is a number that was told, the incarnation that told it.
-- Reply: {'granted', token, voter} | {'not-held'}, or what note_number replies
--        | {'not-voting'} | {'ttl-too-long', max_ttl}.
commands.keep = function(from, to, owner, ttl, token, fence_ttl, incarnation)
  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  if incarnation and incarnation ~= string.match(node.told, ' (%S+)') then return {'not-held'} end

  local asked, highest, given, ends = tonumber(token), 0, 0, {}
  for i = from, to do
    local last, holder, till = entry_of(KEYS[i])
    if holder and holder ~= owner then return {'not-held'} end
    if not holder then given = math.max(given, highest_given(last)) end
    highest, ends[i] = math.max(highest, highest_given(last)), till
  end
  if given > asked then return note_number(highest, from, to, owner, ends) end
  for i = from, to do ends[i] = math.max(own_time_ms() + tonumber(ttl), ends[i] or 0) end
  note_ttl(ttl)
  return grant(math.max(highest, asked), fence_ttl, from, to, owner, ends)
end
