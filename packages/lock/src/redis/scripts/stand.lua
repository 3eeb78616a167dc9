-- Stands in line, and takes nothing but its turn: where the lock is free here, somebody may still hold it on a majority of the nodes.
-- Who has its turn already keeps that.
-- keys: lock, fence and line of each resource, then the own key of who waits.
-- arguments: owner, score, channel, turn (ms).
-- Reply: {'turn'} | {'held', remaining (ms), time (ms)} | {'not-admitted'} | {'wrong-members'}.
commands.stand = function(from, to, owner, score, channel, turn)
  local waiter = KEYS[to]
  to = to - 1
  local node, refusal = admitted()
  if not node then return refusal end

  local function obstacles()
    local found = {}
    for i = from, to, 3 do
      local holder = redis.call('GET', KEYS[i])
      if holder ~= owner and holder ~= turn_of(owner) then
        found[#found + 1] = holder and KEYS[i] or first_in(KEYS[i + 2]) or waiter
      end
    end
    return found
  end

  local found = obstacles()
  if #found > 0 then
    stand_in_line(waiter, score, owner, channel, turn, from, to)
    for i = from + 2, to, 3 do hand_over(KEYS[i]) end
    found = obstacles()
  end
  if #found == 0 then return {'turn'} end
  return {'held', longest_left(found, node.max_ttl), digits(own_time_ms())}
end
