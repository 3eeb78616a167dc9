-- INSPECT: returns the facts that this node remembers. It also names the node's incarnation: its
-- data since the last start, flush or failover. None of these keeps a valid name, so the first
-- INSPECT after it begins a new one.
--
-- If only KEYS[2] was lost, INSPECT ends the incarnation, as RETIRE does.
--
-- - ARGV: a random name for the incarnation
-- - replies:
--   - {'inspected', history, incarnation, voting (1|0), generation, roster, max, longest (ms),
--     awaits, max_ttl (ms)}. A field is empty or 0 if nothing is known. `awaits`: see prepare.lua
--   - a mismatch, see node.lua
commands.inspect = function(_, _, name)
  local seen = redis.call('HMGET', NODE, 'seen_history', 'members', 'before')
  local refusal = mismatch(seen[2])
  if refusal then return refusal end
  if has_lost_before(seen[3]) then
    end_incarnation(name, 'before')
  elseif seen[1] ~= own_history() then
    begin_incarnation(name)
  end

  local fields = redis.call('HMGET', NODE, 'incarnation', 'history', 'generation', 'roster', 'max', 'longest', 'awaits',
    'max_ttl')
  return {
    'inspected', own_history(), fields[1], fields[2] == own_history() and 1 or 0, fields[3] or '0', fields[4] or '',
    fields[5] or '0', fields[6] or '0', fields[7] or '',
    fields[8] or '',
  }
end
