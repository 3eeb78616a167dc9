-- RETIRE: ends this node's incarnation, like a restart. The node does not vote until readmission.
-- There are two reasons for it:
--
-- - Other nodes know a later incarnation of this node, so its votes do not count beside theirs.
-- - An operator knows that the node's data has gone back in time.
--
-- - ARGV: incarnation, a random name for the next one
-- - replies:
--   - {'retired'}
--   - {'changed'}: the node is another incarnation, or does not vote
--   - a mismatch, see node.lua
commands.retire = function(_, _, incarnation, name)
  local fields = redis.call('HMGET', NODE, 'history', 'incarnation', 'members')
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end
  end_incarnation(name)
  return {'retired'}
end
