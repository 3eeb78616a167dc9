-- The lines of those who wait, first come, first served. Each resource has one: a sorted set of waiters by their score, which is
-- when they came. What a waiter waits for stands under its own key, which it renews by asking again: one that has vanished is
-- passed over when that has expired.
-- A lock that is free belongs to the first in line: nobody else gets it, and who waits for several gets none before it is first for all.
-- A waiter's key is a list: owner, channel, turn (ms), then lock and line of each resource; and one word more once it has been called.

-- Milliseconds until the last of these keys expires.
local function longest_left(keys, max_ttl)
  local WITHOUT_TTL, longest = -1, 0
  for _, key in ipairs(keys) do
    local pttl = redis.call('PTTL', key)
    longest = math.max(longest, pttl == WITHOUT_TTL and max_ttl or pttl)
  end
  return longest
end

-- So that a script that meets many who have vanished does not hold up the node. Others may be let in before the rest, then.
local VANISHED_MAX = 100

-- The key of the first waiter that has not vanished, and its list; nil where there is none.
local function first_in(line)
  for _ = 1, VANISHED_MAX do
    local waiter = redis.call('ZRANGE', line, '0', '0')[1]
    if not waiter then return nil end
    local place = redis.call('LRANGE', waiter, '0', '-1')
    if #place > 0 then return waiter, place end
    redis.call('ZREM', line, waiter)
  end
  return nil
end

-- Tells the first in this line that it is its turn, once, when all that it waits for is free and it is first in the line for that.
-- Who is `told` is so elsewhere.
local function call_first(line, told)
  local waiter, place = first_in(line)
  local is_called = place and #place % 2 == 0
  if not waiter or is_called then return end
  for i = 4, #place, 2 do
    local lock, other = place[i], place[i + 1]
    if redis.call('EXISTS', lock) == 1 or (other ~= line and first_in(other) ~= waiter) then return end
  end
  redis.call('RPUSH', waiter, 'called')
  -- Who may not publish here lets waiters go by their clocks.
  if place[1] ~= told then redis.pcall('PUBLISH', place[2], place[1]) end
end

-- How many at the head of this line have a key that begins like this, `most` at most, so that nobody who came more than `together`
-- (ms) before one of them is behind it; and whether others wait.
local LOOKED_AT_MAX = 64
local function followers(line, family, most, together)
  local count, first_other = 0, nil
  local found = redis.call('ZRANGE', line, '0', LOOKED_AT_MAX - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local score = tonumber(found[i + 1])
    if first_other and (count == most or score > first_other + together) then break end
    if string.sub(found[i], 1, #family) ~= family then
      first_other = first_other or score
    elseif count < most then
      count = count + 1
    end
  end
  return count, first_other and 1 or 0
end

-- Lock, fence and line of each resource stand at these places of KEYS.
local function stand_in_line(waiter, score, owner, channel, turn, from, to)
  local place = {owner, channel, turn}
  for i = from, to, 3 do
    local lock, line = KEYS[i], KEYS[i + 2]
    place[#place + 1], place[#place + 2] = lock, line
    redis.call('ZADD', line, score, waiter)
    if redis.call('PTTL', line) < tonumber(turn) then redis.call('PEXPIRE', line, turn) end
  end
  redis.call('DEL', waiter)
  redis.call('RPUSH', waiter, unpack(place))
  redis.call('PEXPIRE', waiter, turn)
end
