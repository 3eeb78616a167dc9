-- PREPARE: lets a node without a vote wait for a move of the locks to its node set. From then on,
-- only the move may admit the node: the set no longer starts by itself. The node begins a new
-- incarnation. So if another client has begun to start the set, its ADMIT fails.
--
-- - ARGV:
--   - incarnation
--   - early (1|0): 1 if the previous set still voted after this incarnation was inspected. So this
--     incarnation began before any vote of its own set, and cannot have forgotten one
--   - the previous set, and a random name for the next incarnation
-- - replies:
--   - {'prepared'}
--   - {'voting'}: the node votes already
--   - {'changed'}: the node is another incarnation
--   - {'awaits', the set that it waits for}: a move from another set
--   - a mismatch, see node.lua
commands.prepare = function(_, _, incarnation, early, previous_set, name)
  local fields = redis.call('HMGET', NODE, 'seen_history', 'incarnation', 'members', 'history', 'awaits', 'previous_set')
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end
  if fields[4] == own_history() then return {'voting'} end
  if fields[5] then return fields[6] == previous_set and {'prepared'} or {'awaits', fields[6] or ''} end
  begin_incarnation(name)
  redis.call('HSET', NODE, 'awaits', early, 'previous_set', previous_set)
  return {'prepared'}
end
