-- The lines of those who wait, first come, first served. Each resource has one: a sorted set of waiters by their score, which is
-- when they came. What a waiter waits for stands under its own key, which it renews by asking again: one that has vanished is
-- passed over when that has expired. A lock that is free belongs to the first in line.
-- What is handed over is a turn: nobody else gets the lock as long as it lasts. It is no lease and has no token before ACQUIRE,
-- so the lock has another value than for a holder, and neither CONFIRM nor EXTEND takes it for one.
-- A waiter's key is a list: owner, channel, turn (ms), then lock and line of each resource.

local function turn_of(owner) return 'turn:' .. owner end
local function is_turn(holder) return string.sub(holder, 1, 5) == 'turn:' end

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

-- Hands all that the first in this line waits for over to it, and tells it; or nothing, while a part of it is not free or others
-- are first in the line for that.
local function hand_over(line)
  local waiter, place = first_in(line)
  if not waiter then return end
  for i = 4, #place, 2 do
    if redis.call('EXISTS', place[i]) == 1 or first_in(place[i + 1]) ~= waiter then return end
  end
  for i = 4, #place, 2 do
    redis.call('SET', place[i], turn_of(place[1]), 'PX', place[3])
    redis.call('ZREM', place[i + 1], waiter)
  end
  redis.call('DEL', waiter)
  -- Who may not publish here lets waiters go by their clocks.
  redis.pcall('PUBLISH', place[2], place[1])
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
