-- Learns that another node begins a new generation: votes of its earlier ones do not count beside this node's from now on.
-- What this node has voted together with them is covered by the `max` that it answers.
-- The generation is promised to one life of the other node's data. Clients that admit the same life at the same time get the
-- same promise again; for another life it must be higher than every generation that is known here.
-- KEYS: node. ARGV: place of the other node in the roster (from 1), its incarnation, its new generation, members, a random name.
-- Reply: {'promised', max, gen, roster} | {'refused', generation known here, incarnation it was promised to ('' where not known)}
--        | {'not-admitted'} | {'wrong-members'}.
local place, incarnation, generation, members, name = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

local node, refusal = admitted_node(members, name)
if not node then return refusal end
local roster = numbers(node.roster)
local field = 'promised_to:' .. place
local life = redis.call('HGET', KEYS[1], field) or ''
local again = life == incarnation and roster[place] == generation
if not again then
  if roster[place] >= generation then return {'refused', roster[place], life} end
  roster[place] = generation
  redis.call('HSET', KEYS[1], 'roster', table.concat(roster, ','), field, incarnation)
end
return {'promised', string.format('%.0f', node.max), node.gen, table.concat(roster, ',')}
