-- The wait queues.
-- Each resource has one: a sorted set of waiters by their enqueue times. Each waiter has its own
-- key, which expires unless the waiter asks again in time. A waiter without a key is passed over.
--
-- A free lock belongs to the first waiter, and no other client gets it. A waiter for several
-- resources gets none before it is first for all of them.
--
-- The waiter's key is a list:
--
-- - owner
-- - channel
-- - time (ms) until which ENQUEUE renews this key only, not the queues
-- - the queue of each resource
-- - NOTIFIED, after the waiter was notified
--
-- A script must be short, because it blocks the server. So all calls of a script share two budgets
-- for work on other waiters: EXPIRED_MAX and QUEUES_EXAMINED_MAX.

-- Limit of the expired waiters that one script removes. After that, the first waiter counts as
-- present even if its key has expired. So the caller may be refused, but never overtakes a waiter.
-- The next scripts remove the rest.
local EXPIRED_MAX = 500
local expired = 0

-- Remaining time (ms) of the key of each waiter that this script has met.
local left_of = {}
local NO_KEY = -2 -- the reply of PTTL

-- Returns the first waiter and the remaining time (ms) of its position; nil if nobody waits.
local function head_of(queue)
  while true do
    local waiter = redis.call('ZRANGE', queue, '0', '0')[1]
    if not waiter then return nil end
    local left = left_of[waiter] or redis.call('PTTL', waiter)
    left_of[waiter] = left
    if left ~= NO_KEY or expired == EXPIRED_MAX then return waiter, math.max(1, left) end
    redis.call('ZREM', queue, waiter)
    expired = expired + 1
  end
end

-- Returns the time (ms) for which a waiter's position may hold up the caller. `stays` is the
-- remaining time of the waiter's key, which is never set for longer than a lease may last. If more
-- is left of it, the clock was set back. The position then ends after the longest lease, as in
-- `lease_left`. A living waiter renews it before.
local function position_left(waiter, stays)
  if stays <= voter.max_ttl then return stays end
  local left = voter.longest > 0 and voter.longest or voter.max_ttl
  redis.call('PEXPIRE', waiter, left)
  left_of[waiter] = left
  return left
end

local NOTIFIED, QUEUES_AT = 'notified', 4

-- Limit of the queues that one script examines for waiters of several resources. After that, such a
-- waiter is not notified: its next ENQUEUE finds out that it is first. For a waiter of a single
-- resource, no queue is examined.
local QUEUES_EXAMINED_MAX = 1000
local queues_examined = 0

-- The end of a channel's name if some waiter may listen to the sharded channel of this name.
local SHARDED = ':sharded'

-- In a Cluster, SPUBLISH sends a message only to the servers of the channel's slot. PUBLISH sends
-- it to all servers. So PUBLISH is used only if SPUBLISH reached nobody, or failed: servers before
-- Redis 7 lack it, and the user may lack permission.
local function publish(channel, message)
  if string.sub(channel, -#SHARDED) == SHARDED then
    local received = redis.pcall('SPUBLISH', channel, message)
    if type(received) == 'number' and received > 0 then return end
  end
  -- Without PUBLISH permission, waiters fall back to polling.
  redis.pcall('PUBLISH', channel, message)
end

-- Notifies a waiter that all its resources are free and that it is first for each, if that is so.
-- It is already known to be first in the queue `known`, whose lock is free. A waiter that was
-- notified is not notified again before its next ENQUEUE.
local function notify(waiter, known)
  local may_be_several = queues_examined < QUEUES_EXAMINED_MAX
  local position = redis.call('LRANGE', waiter, '0', may_be_several and -1 or QUEUES_AT)
  local count = #position - QUEUES_AT + 1
  if count < 1 or position[#position] == NOTIFIED or (count > 1 and not may_be_several) then return end
  if count > 1 or position[QUEUES_AT] ~= known then
    queues_examined = queues_examined + count - 1
    local queues = {unpack(position, QUEUES_AT)}
    for _, record in ipairs(records_of(queues)) do
      local _, holder = parts_of(record)
      if holder then return end
    end
    for _, queue in ipairs(queues) do
      if queue ~= known and head_of(queue) ~= waiter then return end
    end
  end
  write_though_full()
  redis.call('RPUSH', waiter, NOTIFIED)
  publish(position[2], position[1])
end

-- Notifies these waiters by `notify`, each once. Each is the first in the queue at its place in
-- `queues`, whose lock is free.
local function notify_all(waiters, queues)
  local done = {}
  for i, waiter in ipairs(waiters) do
    if not done[waiter] then notify(waiter, queues[i]) end
    done[waiter] = true
  end
end

-- Limit of the waiters that `followers` examines.
local LOOKED_AT_MAX = 64
-- Counts the waiters near the head of the queue whose keys begin with `process_id`, at most
-- `followers_max`. None of them came more than `together_ms` after the first waiter of another
-- process.
local function followers(queue, process_id, followers_max, together_ms)
  local count, first_other = 0, nil
  local found = redis.call('ZRANGE', queue, '0', LOOKED_AT_MAX - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local enqueued_ms = tonumber(found[i + 1])
    if first_other and (count == followers_max or enqueued_ms > first_other + together_ms) then break end
    if string.sub(found[i], 1, #process_id) ~= process_id then
      first_other = first_other or enqueued_ms
    elseif count < followers_max then
      count = count + 1
    end
  end
  return count
end

-- The number of grace periods for which a queue's key lasts at least after a waiter has joined. In
-- all but the last of them, ENQUEUE renews only the waiter's own key. That saves work, because a
-- waiter for many resources asks often.
local QUEUE_GRACES = 5

-- Enqueues a waiter. KEYS has the queues of the resources from `from` to `to`.
local function join_queues(waiter, enqueued_ms, owner, channel, grace_ms, from, to)
  local queues, queue_ms = {unpack(KEYS, from, to)}, QUEUE_GRACES * grace_ms
  for i, record in ipairs(records_of(queues)) do
    local queue = queues[i]
    redis.call('ZADD', queue, enqueued_ms, waiter)
    if redis.call('PTTL', queue) < queue_ms then redis.call('PEXPIRE', queue, digits(queue_ms)) end
    if record and string.byte(record, WAITING_AT) ~= WAITS then write(queue, parts_of(record, true)) end
  end
  redis.call('DEL', waiter)
  redis.call('RPUSH', waiter, owner, channel, digits(own_time_ms() + queue_ms - grace_ms), unpack(queues))
  redis.call('PEXPIRE', waiter, grace_ms)
  left_of[waiter] = nil
end

-- Renews the position of a waiter, which may then be notified again. Returns false if the waiter
-- must be enqueued again instead.
local function renew(waiter, grace_ms)
  local until_ms = redis.call('LRANGE', waiter, 2, 2)[1]
  if not until_ms or tonumber(until_ms) < own_time_ms() then return false end
  if redis.call('LRANGE', waiter, -1, -1)[1] == NOTIFIED then redis.call('RPOP', waiter) end
  redis.call('PEXPIRE', waiter, grace_ms)
  left_of[waiter] = nil
  return true
end

-- Removes these waiters from the queues in KEYS from `from` to `to`.
local function leave_queues(waiters, from, to)
  for i = from, to do redis.call('ZREM', KEYS[i], unpack(waiters)) end
  redis.call('DEL', unpack(waiters))
  for _, waiter in ipairs(waiters) do left_of[waiter] = nil end
end
