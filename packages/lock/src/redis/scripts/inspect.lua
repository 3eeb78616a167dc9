-- Says what this node remembers, and names this life of its data, unless it has a name. A flush takes the name away, though the
-- process and its run id stay.
-- arguments: a random name for this life of the data.
-- Reply: {'inspected', history, incarnation, admitted (1|0), gen, roster, max, longest (ms), waited (ms)}; '' or '0'
--        where nothing is known. waited: how long ago this life of the data was first inspected.
--        Or a mismatch, see node.lua.
commands.inspect = function(_, _, name)
  local seen = redis.call('HMGET', NODE, 'seen_history', 'seen_at', 'history', 'members')
  local refusal = mismatch(seen[4])
  if refusal then return refusal end
  if seen[1] ~= own_history() then
    begin_life(name)
  elseif seen[3] ~= own_history() and tonumber(seen[2]) > own_time_ms() then
    -- The clock has gone back since: the wait begins again, as it would not end before the clock is back.
    write_though_full()
    redis.call('HSET', NODE, 'seen_at', digits(own_time_ms()))
  end

  local fields = redis.call('HMGET', NODE,
    'incarnation', 'history', 'gen', 'roster', 'max', 'longest', 'seen_at')
  return {
    'inspected', own_history(), fields[1], fields[2] == own_history() and 1 or 0, fields[3] or '0', fields[4] or '', fields[5] or '0',
    fields[6] or '0', digits(math.max(0, own_time_ms() - tonumber(fields[7]))),
  }
end
