-- Says what this node remembers, and names its incarnation if nobody has yet.
-- The name tells a flushed node from the one that was inspected: its process, and so its run id, is the same.
-- KEYS: node. ARGV: a random name, used if this incarnation has none.
-- Reply: {'inspected', run_id, incarnation, admitted (1|0), gen, roster, max, members}; '' or '0' where nothing is known.
local run_id = own_run_id()
local fields = redis.call('HMGET', KEYS[1], 'incarnation_run_id', 'incarnation', 'run_id', 'gen', 'roster', 'max', 'members')
local incarnation = fields[2]
if fields[1] ~= run_id then
  incarnation = ARGV[1]
  redis.call('HSET', KEYS[1], 'incarnation_run_id', run_id, 'incarnation', incarnation)
end
return {
  'inspected', run_id, incarnation, fields[3] == run_id and 1 or 0,
  fields[4] or '0', fields[5] or '', fields[6] or '0', fields[7] or '',
}
