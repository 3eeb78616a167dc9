-- Lets this node vote, if it still is the incarnation that was inspected and has not been admitted meanwhile.
-- KEYS: node. ARGV: run_id, incarnation, gen, roster, floor, members, max_ttl (ms).
-- Reply: {'admitted'} | {'already-admitted'} | {'changed'} | {'wrong-members'}.
local run_id, incarnation, gen, roster, floor, members, max_ttl = unpack(ARGV)

local fields = redis.call('HMGET', KEYS[1], 'run_id', 'incarnation', 'seen_run_id', 'members', 'max')
if own_run_id() ~= run_id or fields[3] ~= run_id or fields[2] ~= incarnation then return {'changed'} end
if fields[4] and fields[4] ~= members then return {'wrong-members'} end
if fields[1] == run_id then return {'already-admitted'} end

local highest = math.max(tonumber(floor), tonumber(fields[5] or '0'))
local digits = string.format('%.0f', highest)
redis.call('HSET', KEYS[1], 'run_id', run_id, 'gen', gen, 'roster', roster, 'floor', digits, 'max', digits,
  'members', members, 'max_ttl', max_ttl)
return {'admitted'}
