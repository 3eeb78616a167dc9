-- Begins a new incarnation: the node's data until its next start, flush, failover or restore. The
-- client sends a random name. A repeated request sends the same one, so the name also gets the
-- time: no two incarnations share a name.
local function begin_incarnation(name)
  voter = nil
  write_though_full()
  local time = redis.call('TIME')
  redis.call('HDEL', NODE, 'recovery_since')
  redis.call('HSET', NODE, 'seen_history', own_history(), 'incarnation', string.sub(name, -8) .. '.' .. time[1] .. '.' .. time[2])
end

-- Ends an incarnation that may have voted, and begins another one. Also removes the fields `...`.
--
-- Removes the generation, too. A durable node with a generation but no vote would count as a node
-- that has kept its data, and would skip the recovery wait.
local function end_incarnation(name, ...)
  redis.call('HDEL', NODE, 'history', 'generation', 'vote', ...)
  begin_incarnation(name)
end
