-- Says what this node remembers.
-- KEYS: node. ARGV: a random name, given to this life of the data if it has none.
-- Reply: {'inspected', run_id, incarnation, admitted (1|0), gen, roster, max, longest (ms), members, waited (ms)}; '' or '0'
--        where nothing is known. waited: how long ago this life of the data was first found not admitted.
stamp(ARGV[1])
local fields = redis.call('HMGET', KEYS[1],
  'incarnation', 'run_id', 'gen', 'roster', 'max', 'longest', 'members', 'seen_at')
local run_id = own_run_id()
return {
  'inspected', run_id, fields[1], fields[2] == run_id and 1 or 0, fields[3] or '0', fields[4] or '', fields[5] or '0',
  fields[6] or '0', fields[7] or '', digits(math.max(0, own_time_ms() - tonumber(fields[8]))),
}
