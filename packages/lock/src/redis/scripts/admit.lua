-- Lets this node vote, if it still is the incarnation that was inspected. One that votes already, in a lower generation than
-- others have promised it, is raised to that: its memory is whole, but its votes would not count beside theirs.
-- KEYS: node. ARGV: run_id, incarnation, gen, roster, floor, members, max_ttl (ms), quarantine (ms).
-- Reply: {'admitted'} | {'already-admitted'} | {'changed'} | {'wrong-members'} | {'too-early'} where the node has been seen
--        for less than the quarantine: it may have forgotten a lease that somebody still holds.
local run_id, incarnation, gen, roster, floor, members, max_ttl, quarantine = unpack(ARGV)

local fields = redis.call('HMGET', KEYS[1],
  'run_id', 'incarnation', 'seen_run_id', 'members', 'max', 'roster', 'seen_at', 'gen')
if own_run_id() ~= run_id or fields[3] ~= run_id or fields[2] ~= incarnation then return {'changed'} end
if fields[4] and fields[4] ~= members then return {'wrong-members'} end
if fields[1] == run_id then
  if tonumber(fields[8]) >= tonumber(gen) then return {'already-admitted'} end
elseif own_time_ms() - tonumber(fields[7]) < tonumber(quarantine) then
  return {'too-early'}
end

local highest = math.max(tonumber(floor), tonumber(fields[5] or '0'))
local digits = string.format('%.0f', highest)
local known = numbers(roster)
for place, generation in ipairs(numbers(fields[6] or '')) do
  known[place] = math.max(known[place], generation)
end
redis.call('HSET', KEYS[1], 'run_id', run_id, 'gen', gen, 'roster', table.concat(known, ','),
  'floor', digits, 'max', digits, 'members', members, 'max_ttl', max_ttl)
return {'admitted'}
