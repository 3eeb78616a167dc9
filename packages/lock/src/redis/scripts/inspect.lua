-- Says what this node remembers, and names this life of its data, unless it has a name. A flush takes the name away, though the
-- process and its run id stay.
-- arguments: a random name for this life of the data.
-- Reply: {'inspected', history, incarnation, admitted (1|0), gen, roster, max, longest (ms)}; '' or '0'
--        where nothing is known. Or a mismatch, see node.lua.
commands.inspect = function(_, _, name)
  local seen = redis.call('HMGET', NODE, 'seen_history', 'members')
  local refusal = mismatch(seen[2])
  if refusal then return refusal end
  if seen[1] ~= own_history() then begin_life(name) end

  local fields = redis.call('HMGET', NODE, 'incarnation', 'history', 'gen', 'roster', 'max', 'longest')
  return {
    'inspected', own_history(), fields[1], fields[2] == own_history() and 1 or 0, fields[3] or '0', fields[4] or '', fields[5] or '0',
    fields[6] or '0',
  }
end
