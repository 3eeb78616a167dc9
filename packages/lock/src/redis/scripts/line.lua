-- The wait queues. The code calls them lines.
-- Each resource has one: a sorted set of waiters by their score, which is the enqueue time. Each
-- waiter has its own key, which it renews when it asks again. A waiter whose key has expired has
-- vanished, and is passed over.
--
-- A free lock belongs to the first waiter, and no other client gets it. A waiter for several
-- resources gets none before it is first for all of them.
--
-- The waiter's key is a list:
--
-- - owner
-- - channel
-- - time (ms) until which it need not be enqueued again
-- - the queue of each resource
-- - CALLED, after the waiter was notified
--
-- A script must be short. So all its calls share two budgets for work on other waiters:
-- VANISHED_MAX and CALL_LINES_MAX.

-- Limit of the vanished waiters that one script removes. After that, the first waiter counts as
-- present. The caller is refused then, but overtakes nobody. The next scripts remove the rest.
local VANISHED_MAX = 500
local vanished = 0

-- Remaining time (ms) of each waiter that this script has met.
local left_of = {}
local GONE = -2

-- Returns the first waiter and the remaining time (ms) of its position; nil if nobody waits.
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

-- Limit of the queues that one script examines for waiters of several resources. After that, such a
-- waiter is not notified: its next ENQUEUE finds out. A waiter for one resource needs none of them.
local CALL_LINES_MAX = 1000
local call_lines = 0

-- Notifies a waiter, which is first for the free lock `known`, that it is first for all its
-- resources. It does so once, and only if all of them are free. The owner `told` gets no message,
-- because its own client notifies it.
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
  -- Without PUBLISH permission, waiters fall back to polling.
  if place[1] ~= told then redis.pcall('PUBLISH', place[2], place[1]) end
end

-- Notifies the first waiters of these queues of free locks, each once.
local function call_all(waiters, lines, told)
  local done = {}
  for i, waiter in ipairs(waiters) do
    if not done[waiter] then call(waiter, lines[i], told) end
    done[waiter] = true
  end
end

-- Limit of the waiters that `followers` examines.
local LOOKED_AT_MAX = 64
-- Counts the waiters near the head of the queue whose keys begin with `family`, `most` at most.
-- None of them came more than `together` ms after the first waiter of another process. The second
-- result is 1 if waiters of other processes were found.
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

-- Grace periods for which a queue lasts at least after an ENQUEUE. In all but the last of them,
-- ENQUEUE renews only the waiter's own key, because a waiter for many resources asks often.
local LINE_TURNS = 5

-- Enqueues a waiter. KEYS has the queues of the resources from `from` to `to`.
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

-- Renews the position of a waiter, which may then be notified again. Returns false if the waiter
-- must be enqueued again instead.
local function renew(waiter, turn)
  local until_ms = redis.call('LRANGE', waiter, 2, 2)[1]
  if not until_ms or tonumber(until_ms) < own_time_ms() then return false end
  if redis.call('LRANGE', waiter, -1, -1)[1] == CALLED then redis.call('RPOP', waiter) end
  redis.call('PEXPIRE', waiter, turn)
  left_of[waiter] = nil
  return true
end

-- Removes these waiters from the queues in KEYS from `from` to `to`.
local function leave_line(waiters, from, to)
  for i = from, to do redis.call('ZREM', KEYS[i], unpack(waiters)) end
  redis.call('DEL', unpack(waiters))
  for _, waiter in ipairs(waiters) do left_of[waiter] = nil end
end
