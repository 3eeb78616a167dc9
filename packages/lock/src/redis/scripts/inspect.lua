-- Says what this node remembers.
-- arguments: a random name, given to this life of the data if it has none.
-- Reply: {'inspected', run_id, incarnation, admitted (1|0), gen, roster, max, longest (ms), members, waited (ms)}; '' or '0'
--        where nothing is known. waited: how long ago this life of the data was first found not admitted.
commands.inspect = function(_, args)
  stamp(args[1])
  local fields = redis.call('HMGET', KEYS[1],
    'incarnation', 'run_id', 'gen', 'roster', 'max', 'longest', 'members', 'seen_at')
  return {
    'inspected', OWN_RUN_ID, fields[1], fields[2] == OWN_RUN_ID and 1 or 0, fields[3] or '0', fields[4] or '', fields[5] or '0',
    fields[6] or '0', fields[7] or '', digits(math.max(0, own_time_ms() - tonumber(fields[8]))),
  }
end
