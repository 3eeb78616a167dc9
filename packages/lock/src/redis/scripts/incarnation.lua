-- Begins a new incarnation of the node's data. A repeated request brings the same random name
-- again. So the time becomes part of the name, and no two incarnations share one.
local function begin_incarnation(name)
  voter = nil
  write_though_full()
  local time = redis.call('TIME')
  redis.call('HDEL', NODE, 'recovery_since')
  redis.call('HSET', NODE, 'seen_history', own_history(), 'incarnation', string.sub(name, -8) .. '.' .. time[1] .. '.' .. time[2])
end
