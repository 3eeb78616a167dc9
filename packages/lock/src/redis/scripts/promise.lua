-- Learns which incarnations of other nodes are the latest: votes of their earlier ones do not count beside this node's from now
-- on. What this node has voted together with those is covered by the `max` that it answers.
-- All claims or none. A claim is the one that is known here, or it is above that and takes its place; but only if that is what its
-- client has seen here. Who has been overtaken by others looks again, and joins them: a claim may have been on its way for long,
-- and be for an incarnation that is over by now.
-- A node that has no vote promises for the time when it has, and belongs from now on to the clients that name the nodes alike:
-- two services cannot share it out at their first start.
-- arguments: this node's incarnation, its name, all names, number of nodes, then of each claim: the other node's place (from 1),
--       its incarnation, the generation claimed for it, the one that is known here as far as the client knows.
-- Reply: {'promised', max, longest (ms), admitted (1|0), gen, incarnation, roster as it was before} | {'refused'} | {'changed'}.
--        Or a mismatch, see node.lua.
commands.promise = function(_, _, incarnation, name, names, count, ...)
  local claims = {...}
  local fields = redis.call('HMGET', NODE,
    'seen_history', 'incarnation', 'members', 'roster', 'max', 'longest', 'history', 'gen')
  local refusal = mismatch(fields[3])
  if refusal then return refusal end
  if fields[1] ~= own_history() or fields[2] ~= incarnation then return {'changed'} end

  local roster = lives(fields[4] or string.rep('0:,', tonumber(count)))
  local before = as_roster(roster)
  for i = 1, #claims, 4 do
    local known, claimed, generation = roster[tonumber(claims[i])], claims[i + 1], tonumber(claims[i + 2])
    local is_known = known.incarnation == claimed and known.gen == generation
    if not is_known and (known.gen ~= tonumber(claims[i + 3]) or known.gen >= generation) then return {'refused'} end
    known.incarnation, known.gen = claimed, generation
  end
  note_roster(fields[8] or '0', incarnation, as_roster(roster), name, names)
  voter = nil
  return {
    'promised', fields[5] or '0', fields[6] or '0', fields[7] == own_history() and 1 or 0, fields[8] or '0', incarnation, before,
  }
end
