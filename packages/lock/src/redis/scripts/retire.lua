-- Ends this node's incarnation, as a restart would: it has no vote until it is admitted anew. Others know of a later incarnation
-- of the node, so its votes do not count beside theirs; or an operator knows that its data has gone back in time.
-- arguments: incarnation, a random name for the next one.
-- Reply: {'retired'} | {'changed'} where it is not that incarnation, or has no vote. Or a mismatch, see node.lua.
commands.retire = function(_, _, incarnation, name)
  local fields = redis.call('HMGET', NODE, 'history', 'incarnation', 'members')
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end
  -- Without its generation nobody takes it for a durable node that has missed nothing.
  redis.call('HDEL', NODE, 'history', 'gen', 'vote')
  begin_life(name)
  return {'retired'}
end
