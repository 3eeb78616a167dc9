-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks, and who is first in line those that are its own. Who is refused and has
-- a score stands in line.
-- keys: lock, fence and line of each resource, then the own key of who would wait.
-- arguments: owner, ttl (ms), fence ttl (ms); of who would wait also its score, channel and turn (ms), to how many it would hand the lock
-- on, what their keys begin with, and by how much (ms) others may have come before them. The token is the last of as many more.
-- Reply: {'granted', token, voter}, for who would wait also how many those are, and whether others wait | {'held', remaining (ms), time (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
commands.acquire = function(from, to, owner, ttl, fence_ttl, score, channel, turn, most, family, together)
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
          -- The lease before has expired, so that nobody has called the first yet.
          call_first(line)
          obstacles[#obstacles + 1] = first
        end
      elseif holder == owner then
        own[lock] = true
      else
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
  local token = highest + 1 + (tonumber(most) or 0)
  if token > TOKEN_MAX then return {'token-exhausted'} end

  for i = from, to, 3 do
    local lock = KEYS[i]
    if not own[lock] or redis.call('PTTL', lock) < tonumber(ttl) then redis.call('SET', lock, owner, 'PX', ttl) end
    if score then redis.call('ZREM', KEYS[i + 2], waiter) end
  end
  if score then redis.call('DEL', waiter) end
  note_ttl(ttl)
  local reply = grant(token, fence_ttl, from + 1, to, 3)
  if most then reply[4], reply[5] = followers(KEYS[to], family, tonumber(most), tonumber(together)) end
  return reply
end
