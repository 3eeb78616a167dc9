-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks, and a waiter finds those that were handed over to it. Who is refused and has
-- a score stands in line.
-- keys: the waiter's own, then lock, fence and line of each resource.
-- arguments: owner, ttl (ms), members, fence ttl (ms); of who would wait also its score, channel and turn (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'held', remaining (ms), time (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
commands.acquire = function(keys, args)
  local owner, ttl, members, fence_ttl, score, channel, turn = unpack(args)
  local waiter, locks, fences, lines = keys[1], every(3, keys, 2), every(3, keys, 3), every(3, keys, 4)

  local node, refusal = admitted_node(members)
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local obstacles, own = {}, {}
  for i, lock in ipairs(locks) do
    local holder = redis.call('GET', lock)
    if not holder then
      local first = first_in(lines[i])
      if first and first ~= waiter then
        -- The lease before has expired, so that nobody has handed the lock over yet.
        hand_over(lines[i])
        obstacles[#obstacles + 1] = redis.call('EXISTS', lock) == 1 and lock or first
      end
    elseif holder == owner then
      own[lock] = true
    elseif holder ~= turn_of(owner) then
      obstacles[#obstacles + 1] = lock
    end
  end
  if #obstacles > 0 then
    if score then stand_in_line(waiter, score, owner, channel, turn, locks, lines) end
    local WITHOUT_TTL, remaining = -1, 0
    for _, key in ipairs(obstacles) do
      local pttl = redis.call('PTTL', key)
      remaining = math.max(remaining, pttl == WITHOUT_TTL and node.max_ttl or pttl)
    end
    return {'held', remaining, digits(own_time_ms())}
  end

  local token = highest_given(node, fences) + 1
  if token > TOKEN_MAX then return {'token-exhausted'} end

  for i, lock in ipairs(locks) do
    if not own[lock] or redis.call('PTTL', lock) < tonumber(ttl) then redis.call('SET', lock, owner, 'PX', ttl) end
    if score then redis.call('ZREM', lines[i], waiter) end
  end
  if score then redis.call('DEL', waiter) end
  note_ttl(node, ttl)
  return grant(node, fences, token, fence_ttl)
end
