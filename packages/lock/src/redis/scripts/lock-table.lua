-- The lock table: one lock record for each resource that this node knows.
-- A record is a field of the node's hash, under the name of the resource's wait queue. So one
-- command reads or writes many records. Keys that expire would each need commands of their own.
-- The hash also has the node's vote: if the hash is lost, the node no longer votes.
--
-- A record has one of two forms:
--
-- - token: the lock is free, and nobody waits
-- - end, mark, token, origin, owner: the lock was taken. It is free again after `end`, in ms by
--   this node's clock
--
-- The mark is + if a waiter may be in the queue, and a blank otherwise. A free lock with waiters
-- has the second form, with end 0 and no owner. So a record shows whether there may be waiters. A
-- fast path such as acquire-free.lua looks at the queue only if there is no record.
--
-- The origin says how the lease came to this node; `is_proven` in vote.lua depends on it:
--
-- - `A` to `~`: by ACQUIRE or CARRY. The character says how far the token is above the first one
--   that was given with the lease. A: they are equal. B: it is 1 higher
-- - `=`: by BACKFILL
-- - a blank: by a release of Fenced that does not know origins. Such a release reads all other
--   parts of the record, and writes a blank
--
-- Numbers have leading zeros: the parts are located by offset, and times compare as text.
--
-- Old records are dropped with their whole hash. There are two hashes: see rotate in vote.lua.
local TIME_DIGITS, TOKEN_DIGITS = 15, 16
local TOKEN_AT, OWNER_AT = TIME_DIGITS + 2, TIME_DIGITS + TOKEN_DIGITS + 3
local ORIGIN_AT = OWNER_AT - 1
local BACKFILLED, UNKNOWN, FIRST, LAST = '=', ' ', string.byte('A'), string.byte('~')
-- The place of the mark, and the bytes of a blank and a +.
local WAITING_AT, BLANK, WAITS = TIME_DIGITS + 1, 32, 43

-- A time (ms) as in a record.
local function time_text(ms) return halves('%07d%08d', ms) end

local now
-- Returns whether a record begins with a time that has passed.
local function is_over(record)
  now = now or time_text(own_time_ms())
  return record < now
end

-- Returns the token of a record. If the lock is held, also returns the owner, the end (ms) and the
-- origin. With `also_over`, a lock counts as held even if its end has passed.
local function parts_of(record, also_over)
  if not record then return nil end
  local is_free = #record == TOKEN_DIGITS
  local token = tonumber(is_free and record or string.sub(record, TOKEN_AT, OWNER_AT - 2))
  if not token then error('not a lock record: ' .. record) end
  if is_free or not also_over and is_over(record) then return token end
  return token, string.sub(record, OWNER_AT), tonumber(string.sub(record, 1, TIME_DIGITS)), string.sub(record, ORIGIN_AT, ORIGIN_AT)
end

-- Returns the first token that a node gave with a lease; 0 if it need not be known.
local function first_token(token, origin)
  if origin == BACKFILLED or origin == UNKNOWN then return 0 end
  return token - string.byte(origin) + FIRST
end

-- Returns the origin of a lease that has a token `above` the first one that was given with it. If
-- there is no character for that, the token counts as the first one, which is on the safe side.
local function origin_of(above)
  return FIRST + above <= LAST and string.char(FIRST + above) or string.char(FIRST)
end

-- Returns the origin of a lease that gets another token while its owner holds it.
local function kept_origin(origin, last, token)
  if origin == BACKFILLED or origin == UNKNOWN then return origin end
  return origin_of(token - first_token(last, origin))
end

local function record_of(queue, also_over)
  return parts_of(redis.call('HGET', NODE, queue) or redis.call('HGET', BEFORE, queue), also_over)
end

-- The records of these resources; false if there is none.
local function records_of(queues)
  local records, before = redis.call('HMGET', NODE, unpack(queues)), nil
  for i, record in ipairs(records) do
    if not record then
      before = before or redis.call('HMGET', BEFORE, unpack(queues))
      records[i] = before[i]
    end
  end
  return records
end

-- Writes a record. Without an owner the lock is free.
local function write(queue, token, owner, ends, origin)
  local text, waits = token_text(token), redis.call('EXISTS', queue) == 1
  if owner or waits then text = time_text(ends or 0) .. (waits and '+' or ' ') .. text .. (origin or UNKNOWN) .. (owner or '') end
  redis.call('HSET', NODE, queue, text)
end
