-- SEAL: ends this node's votes in its node set, because the set moves to another one. It is final.
--
-- The field `members` gets another text. So every script refuses every client of this set, at no
-- cost to scripts of nodes that are not sealed. All else that the node remembers stays as it is.
-- A node that does not vote is sealed, too, so it is never readmitted to this set.
--
-- - ARGV: the next set, and its node names as JSON
-- - replies:
--   - {'sealed', max, longest (ms), voting (1|0), generation, incarnation, roster, max_ttl (ms)}:
--     a repeated request gets the same reply. `voting`: 1 if this still is the incarnation that
--     voted
--   - {'sealed-for', the other next set}
--   - a mismatch, see node.lua
commands.seal = function(_, _, next_set, names)
  local fields = redis.call('HMGET', NODE,
    'members', 'next_set', 'max', 'longest', 'history', 'generation', 'incarnation', 'roster',
    'max_ttl', 'before')
  local is_sealed = fields[1] == MEMBERS .. SEALED
  local refusal = mismatch(is_sealed and MEMBERS or fields[1])
  if refusal then return refusal end
  if is_sealed and fields[2] ~= next_set then return {'sealed-for', fields[2] or ''} end
  if not is_sealed then
    write_though_full()
    redis.call('HSET', NODE, 'members', MEMBERS .. SEALED, 'next_set', next_set, 'names', names)
    voter, is_own_version = nil, nil
  end
  local is_voter = fields[5] == own_history() and not has_lost_before(fields[10])
  return {
    'sealed', fields[3] or '0', fields[4] or '0', is_voter and 1 or 0, fields[6] or '0', fields[7] or '', fields[8] or '',
    fields[9] or '',
  }
end
