-- The lines of those who wait, first come, first served. Each resource has one: a sorted set of waiters by their score, which is
-- when they came. What a waiter waits for stands under its own key, which it renews by asking again: one that has vanished is
-- passed over when that has expired.
-- A lock that is free belongs to the first in line: nobody else gets it, and who waits for several gets none before it is first for all.
-- A waiter's key is a list: owner, channel, until when (ms) it need not stand in its lines anew, the line of each resource; and CALLED
-- once it has been called.
-- A script must be short, so all its calls together share two budgets for work on other waiters: VANISHED_MAX and CALL_LINES_MAX.

-- The vanished waiters that one script removes. Once they are used up, whoever is first in line counts as present: a caller is refused,
-- but overtakes nobody, and the next scripts remove the rest.
local VANISHED_MAX = 500
local vanished = 0

-- The remaining time (ms) of each waiter that this script has met.
local left_of = {}
local GONE = -2

-- The first waiter in line and the remaining time (ms) of its place; nil if nobody waits.
local function first_in(line)
  while true do
    local waiter = redis.call('ZRANGE', line, '0', '0')[1]
    if not waiter then return nil end
    local left = left_of[waiter] or redis.call('PTTL', waiter)
    left_of[waiter] = left
    if left ~= GONE or vanished == VANISHED_MAX then return waiter, math.max(1, left) end
    redis.call('ZREM', line, waiter)
    vanished = vanished + 1
  end
end

local CALLED, LINES_AT = 'called', 4

-- The lines that one script looks at to decide about waiters for several resources. Once they are used up, such a waiter is not called:
-- it finds out by its own next STAND. A waiter for one resource needs none of them.
local CALL_LINES_MAX = 1000
local call_lines = 0

-- Calls this waiter, which is first for the free lock of `known`: tells it that it is its turn, once, if all that it waits for is free and
-- it is first in the line for that. The owner `told` hears of its turn from its client.
local function call(waiter, known, told)
  local may_be_several = call_lines < CALL_LINES_MAX
  local place = redis.call('LRANGE', waiter, '0', may_be_several and -1 or LINES_AT)
  local count = #place - LINES_AT + 1
  if count < 1 or place[#place] == CALLED or (count > 1 and not may_be_several) then return end
  if count > 1 or place[LINES_AT] ~= known then
    call_lines = call_lines + count - 1
    local lines = {unpack(place, LINES_AT)}
    for _, entry in ipairs(entries_of(lines)) do
      local _, holder = parts_of(entry)
      if holder then return end
    end
    for _, line in ipairs(lines) do
      if line ~= known and first_in(line) ~= waiter then return end
    end
  end
  write_though_full()
  redis.call('RPUSH', waiter, CALLED)
  -- Who may not publish here lets waiters go by their clocks.
  if place[1] ~= told then redis.pcall('PUBLISH', place[2], place[1]) end
end

-- Calls those who are first in these lines of free locks, each once.
local function call_all(waiters, lines, told)
  local done = {}
  for i, waiter in ipairs(waiters) do
    if not done[waiter] then call(waiter, lines[i], told) end
    done[waiter] = true
  end
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

-- A line lasts for at least so many turns after a waiter has stood in it. In all but the last of them, STAND renews the waiter's own key
-- only: a waiter for many resources asks often.
local LINE_TURNS = 5

-- The lines of the resources stand at these places of KEYS.
local function stand_in_line(waiter, score, owner, channel, turn, from, to)
  local lines, line_ms = {unpack(KEYS, from, to)}, LINE_TURNS * turn
  for i, entry in ipairs(entries_of(lines)) do
    local line = lines[i]
    redis.call('ZADD', line, score, waiter)
    if redis.call('PTTL', line) < line_ms then redis.call('PEXPIRE', line, digits(line_ms)) end
    if entry and string.byte(entry, WAITING_AT) ~= WAITS then write(line, parts_of(entry, true)) end
  end
  redis.call('DEL', waiter)
  redis.call('RPUSH', waiter, owner, channel, digits(own_time_ms() + line_ms - turn), unpack(lines))
  redis.call('PEXPIRE', waiter, turn)
  left_of[waiter] = nil
end

-- Renews the place of a waiter, which may be called again then. False if it must stand in line instead.
local function renew(waiter, turn)
  local until_ms = redis.call('LRANGE', waiter, 2, 2)[1]
  if not until_ms or tonumber(until_ms) < own_time_ms() then return false end
  if redis.call('LRANGE', waiter, -1, -1)[1] == CALLED then redis.call('RPOP', waiter) end
  redis.call('PEXPIRE', waiter, turn)
  left_of[waiter] = nil
  return true
end

-- These waiters leave the lines at these places of KEYS.
local function leave_line(waiters, from, to)
  for i = from, to do redis.call('ZREM', KEYS[i], unpack(waiters)) end
  redis.call('DEL', unpack(waiters))
  for _, waiter in ipairs(waiters) do left_of[waiter] = nil end
end
