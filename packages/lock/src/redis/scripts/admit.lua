-- ADMIT: lets this node vote, if it still is the incarnation that was inspected. An incarnation is
-- the node's data since its last start, flush, failover or restore.
-- If it votes already, but other nodes have promised a higher generation of it, ADMIT raises it to
-- that generation. Otherwise its votes would not count beside votes of those nodes.
--
-- - ARGV:
--   - history, incarnation and generation of this node
--   - roster, floor, longest lease (ms): computed from the nodes' replies to PROMISE
--   - max_ttl (ms): the limit that most of the inspected nodes have, see limitIn
--   - recovery wait (ms), the node's name, all names
-- - replies:
--   - {'admitted'} | {'already-admitted'} | {'changed'}
--   - {'too-early', left (ms)}: the recovery wait since the first ADMIT is not over
--   - a mismatch, see node.lua
--
-- The recovery wait is necessary because the node may have forgotten a valid lease. It begins at
-- the first ADMIT, which follows the promises of other nodes. Until they promise, an earlier
-- incarnation of this node may still extend a lease.
commands.admit = function(_, _, history, incarnation, generation, roster, floor, longest, max_ttl, recovery_wait_ms,
  name, names)
  local fields = redis.call('HMGET', NODE,
    'history', 'incarnation', 'seen_history', 'members', 'max', 'roster', 'longest', 'recovery_since', 'generation')
  local refusal = mismatch(fields[4])
  if refusal then return refusal end
  if own_history() ~= history or fields[3] ~= history or fields[2] ~= incarnation then return {'changed'} end
  if fields[1] ~= history then
    -- If the clock has gone back since, the wait begins again. Otherwise it would last until the
    -- clock has caught up.
    local since = math.min(tonumber(fields[8] or own_time_ms()), own_time_ms())
    local left = since + tonumber(recovery_wait_ms) - own_time_ms()
    if left > 0 then
      write_though_full()
      redis.call('HSET', NODE, 'recovery_since', digits(since))
      return {'too-early', left}
    end
  elseif tonumber(fields[9]) >= tonumber(generation) then
    return {'already-admitted'}
  end

  local highest = token_text(math.max(tonumber(floor), tonumber(fields[5] or '0')))
  local known = incarnations_in(roster)
  for place, one in ipairs(incarnations_in(fields[6] or '')) do
    if is_later(one, known[place]) then known[place] = one end
  end
  note_roster(generation, incarnation, roster_text(known), name, names)
  redis.call('HSET', NODE, 'history', history, 'generation', generation, 'floor', highest, 'max', highest,
    'longest', digits(math.max(tonumber(longest), tonumber(fields[7] or '0'))), 'max_ttl', max_ttl)
  redis.call('HDEL', NODE, 'awaits')
  voter = nil
  return {'admitted'}
end
