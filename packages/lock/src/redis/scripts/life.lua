-- Begins a new life of the data. A request that is sent again brings its random name along once more, so the name has the
-- time in it, too: no two lives have the same.
local function begin_life(name)
  voter = nil
  write_though_full()
  local time = redis.call('TIME')
  redis.call('HDEL', NODE, 'out_since')
  redis.call('HSET', NODE, 'seen_history', own_history(), 'incarnation', string.sub(name, -8) .. '.' .. time[1] .. '.' .. time[2])
end
