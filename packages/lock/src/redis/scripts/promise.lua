-- Learns which incarnations of other nodes are the latest: votes of their earlier ones do not count beside this node's from now
-- on. What this node has voted together with those is covered by the `max` that it answers.
-- All claims or none. A claim must be above every generation that is known here, unless it is for the same incarnation: clients
-- that admit it at the same time do not get in each other's way. A node that has no vote promises for the time when it has.
-- arguments: this node's incarnation, members, number of nodes, then of each claim: the other node's place (from 1),
--       its incarnation, the generation from which on one that is known here stands against it, the generation claimed for it.
-- Reply: {'promised', max, longest (ms), admitted (1|0), gen, incarnation, roster} | {'refused'} | {'changed'} | {'wrong-members'}.
commands.promise = function(_, args)
  local incarnation, members, count = args[1], args[2], tonumber(args[3])

  local fields = redis.call('HMGET', KEYS[1],
    'seen_run_id', 'incarnation', 'members', 'roster', 'max', 'longest', 'run_id', 'gen')
  if fields[1] ~= OWN_RUN_ID or fields[2] ~= incarnation then return {'changed'} end
  if fields[3] and fields[3] ~= members then return {'wrong-members'} end

  local roster = lives(fields[4] or '')
  -- A node that belongs to nobody yet may have been asked by clients that name other nodes: none of those is here.
  if #roster ~= count and not fields[3] then roster = lives(string.rep('0:,', count)) end
  for i = 4, #args, 4 do
    local known, claimed = roster[tonumber(args[i])], args[i + 1]
    if known.incarnation ~= claimed and known.gen >= tonumber(args[i + 2]) then return {'refused'} end
    known.incarnation, known.gen = claimed, math.max(known.gen, tonumber(args[i + 3]))
  end
  redis.call('HSET', KEYS[1], 'roster', as_roster(roster))
  return {
    'promised', fields[5] or '0', fields[6] or '0', fields[7] == OWN_RUN_ID and 1 or 0, fields[8] or '0', incarnation, as_roster(roster),
  }
end
