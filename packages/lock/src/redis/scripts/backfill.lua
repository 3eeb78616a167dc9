-- BACKFILL: lets this node, too, hold a lease that a majority of other nodes holds.
-- It ignores the wait queue, because nobody else can win while that majority holds the lease.
-- If an undecided acquisition of another client holds the lock here, BACKFILL is refused until that
-- acquisition gives up.
--
-- Invariant: BACKFILL takes the lock only if this node has granted it to no later lease.
-- That is certain in two cases only:
--
-- 1. This node can have given no token above the lease's token. A later lease would have a higher
--    token on each node that granted it. For the bound of the given tokens, see highest_given in
--    vote.lua.
-- 2. This incarnation reported a number before the lease was last extended, and can have given no
--    token above the number since. A later grant would be above it. A number that another
--    incarnation reported proves nothing. See bringBack in redlock/extend.ts.
--
-- - KEYS: the wait queue of each resource
-- - ARGV: owner, ttl (ms), token, fence ttl (ms); in case 2, `token` is the number, and the
--   incarnation that reported it follows
-- - replies:
--   - {'granted', token, voter}
--   - {'not-held'}: another owner holds a lock, or the number is of another incarnation
--   - {'not-held', number, voter}: the node may have given a higher token; see note_number in
--     vote.lua
--   - {'not-voting'} | {'ttl-too-long', max_ttl}
--   - a mismatch; for mismatches and `voter`, see node.lua
commands.backfill = function(from, to, owner, ttl, token, fence_ttl, incarnation)
  local node, refusal = voting_node()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end
  if incarnation and incarnation ~= string.match(node.vote, ' (%S+)') then return {'not-held'} end

  local asked, highest, given, ends = tonumber(token), 0, 0, {}
  local tokens, origins, backfilled = {}, {}, {}
  for i = from, to do
    local last, holder, till, origin = record_of(KEYS[i])
    if holder and holder ~= owner then return {'not-held'} end
    if not holder or not is_proven(last, origin, asked) then given = math.max(given, highest_given(last)) end
    highest, ends[i] = math.max(highest, highest_given(last)), till
    tokens[i], origins[i], backfilled[i] = last, origin, BACKFILLED
  end
  if given > asked then return note_number(highest, from, to, owner, ends, origins, tokens) end
  for i = from, to do ends[i] = math.max(own_time_ms() + tonumber(ttl), ends[i] or 0) end
  note_ttl(ttl)
  return grant(math.max(highest, asked), fence_ttl, from, to, owner, ends, backfilled)
end
