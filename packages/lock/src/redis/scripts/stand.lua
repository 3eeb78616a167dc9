-- Stands in line, and takes nothing: where the lock is free here, somebody may still hold it on a majority of the nodes.
-- keys: lock, fence and line of each resource, then the own key of who waits.
-- arguments: owner, score, channel, turn (ms).
-- Reply: {'turn'} | {'held', remaining (ms), time (ms)} | {'not-admitted'} | {'wrong-members'}.
commands.stand = function(from, to, owner, score, channel, turn)
  local waiter = KEYS[to]
  to = to - 1
  local node, refusal = admitted()
  if not node then return refusal end

  local missing, obstacles = false, {}
  for i = from, to, 3 do missing = missing or redis.call('GET', KEYS[i]) ~= owner end
  -- Else it is a late copy of an old request.
  if missing then stand_in_line(waiter, score, owner, channel, turn, from, to) end
  for i = from, to, 3 do
    local holder = redis.call('GET', KEYS[i])
    local first = not holder and first_in(KEYS[i + 2])
    if holder and holder ~= owner then obstacles[#obstacles + 1] = KEYS[i] end
    if first and first ~= waiter then obstacles[#obstacles + 1] = first end
  end
  if #obstacles == 0 then return {'turn'} end
  for i = from + 2, to, 3 do call_first(KEYS[i]) end
  return {'held', longest_left(obstacles, node.max_ttl), digits(own_time_ms())}
end
