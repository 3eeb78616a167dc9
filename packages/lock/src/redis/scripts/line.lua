-- The lines of those who wait, first come, first served. Each resource has one: a sorted set of waiters by their score, which is
-- when they came. What a waiter waits for stands under its own key, which it renews by asking again: one that has vanished is
-- passed over when that has expired.
-- A lock that is free belongs to the first in line: nobody else gets it, and who waits for several gets none before it is first for all.
-- A waiter's key is a list: owner, channel, turn (ms), the line of each resource; and CALLED once it has been called.

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

local CALLED = 'called'

-- Tells the first in this line that it is its turn, once, when all that it waits for is free and it is first in the line for that.
-- Who is `told` is so elsewhere.
local function call_first(line, told)
  local waiter, place = first_in(line)
  if not waiter or place[#place] == CALLED then return end
  for i = 4, #place do
    local _, holder = entry_of(place[i])
    if holder or (place[i] ~= line and first_in(place[i]) ~= waiter) then return end
  end
  write_though_full()
  redis.call('RPUSH', waiter, CALLED)
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

-- The lines of the resources stand at these places of KEYS.
local function stand_in_line(waiter, score, owner, channel, turn, from, to)
  for i = from, to do
    local line = KEYS[i]
    redis.call('ZADD', line, score, waiter)
    if redis.call('PTTL', line) < tonumber(turn) then redis.call('PEXPIRE', line, turn) end
    local token, holder, ends = entry_of(line, true)
    if token then write(line, token, holder, ends) end
  end
  redis.call('DEL', waiter)
  redis.call('RPUSH', waiter, owner, channel, turn, unpack(KEYS, from, to))
  redis.call('PEXPIRE', waiter, turn)
end
