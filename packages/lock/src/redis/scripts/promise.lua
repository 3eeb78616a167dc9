-- PROMISE: notes the latest incarnations of other nodes. An incarnation is a node's data from one
-- start, flush, failover or restore to the next. From now on, votes of earlier incarnations of
-- these nodes do not count beside this node's votes. No token for which this node has voted beside
-- such an earlier incarnation is above `max` in the reply.
--
-- A nomination names an incarnation as the latest of its node. This node accepts all nominations of
-- a request, or none. It accepts a nomination that it knows already. It accepts a new one if the
-- generation is higher than the known one, and if the client has seen the known one.
--
-- Otherwise another client was faster, and the new nomination may name an incarnation that has
-- ended since. The refused client inspects the nodes again.
--
-- A node that does not vote yet may promise, too. With the promise it stores the client's node
-- names, and refuses clients with other names. So two lock services cannot start on one node at the
-- same time.
--
-- - ARGV:
--   - this node's incarnation, its name, all names, the number of nodes
--   - for each nomination: the place of the other node (from 1), its incarnation, the nominated
--     generation, and the generation that the client saw here
-- - replies:
--   - {'promised', max, longest (ms), voting (1|0), generation, incarnation, roster}: the roster is
--     that from before the promise
--   - {'refused'}
--   - {'changed'}: the node is another incarnation
--   - a mismatch, see node.lua
commands.promise = function(_, _, incarnation, name, names, count, ...)
  local nominations = {...}
  local fields = redis.call('HMGET', NODE,
    'seen_history', 'incarnation', 'members', 'roster', 'max', 'longest', 'history', 'generation')
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end

  local roster = incarnations_in(fields[4] or string.rep('0:,', tonumber(count)))
  local before = roster_text(roster)
  for i = 1, #nominations, 4 do
    local place, nominated, generation, seen = unpack(nominations, i, i + 3)
    local known = roster[tonumber(place)]
    generation = tonumber(generation)
    local is_known = known.incarnation == nominated and known.generation == generation
    if not is_known and (known.generation ~= tonumber(seen) or known.generation >= generation) then return {'refused'} end
    known.incarnation, known.generation = nominated, generation
  end
  note_roster(fields[8] or '0', incarnation, roster_text(roster), name, names)
  voter = nil
  return {
    'promised', fields[5] or '0', fields[6] or '0', fields[7] == own_history() and 1 or 0, fields[8] or '0', incarnation, before,
  }
end
