-- CARRY: lets a node that waits for a move hold leases of the previous set, under the same owners.
-- A repeated CARRY never makes a lease end earlier. If two CARRYs name different owners of a
-- resource, the true holder is unknown. The lock is then held until the later end, under the owner
-- '', which no client has.
--
-- - KEYS: the wait queue of each resource
-- - ARGV:
--   - incarnation: the name of the node's data since its last start, flush, failover or restore
--   - for each resource: owner, remaining time (ms), first token. No token of the previous set is
--     above this node's `floor`, so EXTEND alone needs it; see is_proven in vote.lua
-- - replies:
--   - {'carried'}
--   - {'voting'}: the node votes already: another client has finished this move here
--   - {'changed'}: the node is another incarnation, or does not wait for a move
--   - a mismatch, see node.lua
commands.carry = function(from, to, incarnation, ...)
  local fields, values = redis.call('HMGET', NODE, 'seen_history', 'incarnation', 'members', 'history', 'awaits'), {...}
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end
  if fields[4] == own_history() then return {'voting'} end
  if not fields[5] then return {'changed'} end
  for i = from, to do
    local at = 3 * (i - from)
    local last, holder, till = record_of(KEYS[i])
    local owner, ends = values[at + 1], math.max(own_time_ms() + tonumber(values[at + 2]), till or 0)
    if holder and holder ~= owner then owner = '' end
    write(KEYS[i], math.max(tonumber(values[at + 3]), last or 0), owner, ends, 'A')
  end
  return {'carried'}
end
