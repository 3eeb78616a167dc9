-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks, and a waiter finds those that were handed over to it. Who is refused and has
-- a score stands in line.
-- keys: lock, fence and line of each resource, then the own key of who would wait.
-- arguments: owner, ttl (ms), fence ttl (ms); of who would wait also its score, channel and turn (ms).
-- Reply: {'granted', token, voter} | {'held', remaining (ms), time (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
commands.acquire = function(from, to, owner, ttl, fence_ttl, score, channel, turn)
  local waiter
  if score then waiter, to = KEYS[to], to - 1 end

  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local obstacles, own = {}, {}
  for i = from, to, 3 do
    local lock, line = KEYS[i], KEYS[i + 2]
    if redis.call('EXISTS', lock, line) > 0 then
      local holder = redis.call('GET', lock)
      if not holder then
        local first = first_in(line)
        if first and first ~= waiter then
          -- The lease before has expired, so that nobody has handed the lock over yet.
          hand_over(line)
          obstacles[#obstacles + 1] = redis.call('EXISTS', lock) == 1 and lock or first
        end
      elseif holder == owner then
        own[lock] = true
      elseif holder ~= turn_of(owner) then
        obstacles[#obstacles + 1] = lock
      end
    end
  end
  if #obstacles > 0 then
    if score then stand_in_line(waiter, score, owner, channel, turn, from, to) end
    return {'held', longest_left(obstacles, node.max_ttl), digits(own_time_ms())}
  end

  local highest = 0
  for i = from + 1, to, 3 do highest = math.max(highest, highest_given(KEYS[i])) end
  if highest >= TOKEN_MAX then return {'token-exhausted'} end

  for i = from, to, 3 do
    local lock = KEYS[i]
    if not own[lock] or redis.call('PTTL', lock) < tonumber(ttl) then redis.call('SET', lock, owner, 'PX', ttl) end
    if score then redis.call('ZREM', KEYS[i + 2], waiter) end
  end
  if score then redis.call('DEL', waiter) end
  note_ttl(ttl)
  return grant(highest + 1, fence_ttl, from + 1, to, 3)
end
