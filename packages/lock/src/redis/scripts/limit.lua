-- LIMIT: sets the longest lease (ms) that this node grants, whether it votes or not. Only an
-- operator asks for it. Nothing else changes a limit that a node has: see limitIn in
-- core/readmission.ts.
--
-- It may be repeated. If it arrives late, or while another client admits the node, nodes may have
-- different limits. That costs no safety, and the next LIMIT mends it.
--
-- - ARGV: max_ttl (ms)
-- - replies: {'limited'} | {'changed'}: the node was never set up | a mismatch, see node.lua
commands.limit = function(_, _, max_ttl)
  local members = redis.call('HGET', NODE, 'members')
  local refusal = mismatch(members)
  if refusal then return refusal end
  if not members then return {'changed'} end
  write_though_full()
  redis.call('HSET', NODE, 'max_ttl', max_ttl)
  voter = nil
  return {'limited'}
end
