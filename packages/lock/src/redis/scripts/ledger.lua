-- What this node knows of each resource: the last token that it gave for it, and who has its lock until when. It stands in the node's hash,
-- under the name of the resource's line: many are read or written at once there, where keys that expire would each take commands of their
-- own, and none can be lost without the node's vote.
-- An entry is the token; or, of a lock that was taken, when its lease ends by this node's clock (ms), the token, and the owner. Both
-- numbers have leading zeros: what is what is told by its place, and times compare as texts. Between them stands a + where somebody may
-- be in the resource's line, else a blank; what is free then is like what nobody had, long ago. Only of what has no entry need be asked
-- whether somebody waits.
-- What nobody has written for long is forgotten with the whole hash, of which there are two: see turn_over in vote.lua.
local TIME_DIGITS, TOKEN_DIGITS = 15, 16
local TOKEN_AT, OWNER_AT = TIME_DIGITS + 2, TIME_DIGITS + TOKEN_DIGITS + 3
-- Where a blank says that nobody waits, and a + that somebody may.
local WAITING_AT, BLANK, WAITS = TIME_DIGITS + 1, 32, 43

-- A time (ms) as it stands in an entry.
local function time_text(ms) return halves('%07d%08d', ms) end

local now
-- Whether an entry begins with a time that has passed.
local function is_over(entry)
  now = now or time_text(own_time_ms())
  return entry < now
end

-- The parts of an entry: the last token for a resource that this node remembers; while somebody has its lock, or had it last and its end
-- does not matter, also who, and until when (ms).
local function parts_of(entry, also_over)
  if not entry then return nil end
  local is_free = #entry == TOKEN_DIGITS
  local token = tonumber(is_free and entry or string.sub(entry, TOKEN_AT, OWNER_AT - 2))
  if not token then error('not an entry of the ledger: ' .. entry) end
  if is_free or not also_over and is_over(entry) then return token end
  return token, string.sub(entry, OWNER_AT), tonumber(string.sub(entry, 1, TIME_DIGITS))
end

local function entry_of(line, also_over)
  return parts_of(redis.call('HGET', NODE, line) or redis.call('HGET', BEFORE, line), also_over)
end

-- The entries of these lines, false where there is none.
local function entries_of(lines)
  local entries, before = redis.call('HMGET', NODE, unpack(lines)), nil
  for i, entry in ipairs(entries) do
    if not entry then
      before = before or redis.call('HMGET', BEFORE, unpack(lines))
      entries[i] = before[i]
    end
  end
  return entries
end

-- Without an owner the lock is free.
local function write(line, token, owner, ends)
  local text, waits = token_text(token), redis.call('EXISTS', line) == 1
  if owner or waits then text = time_text(ends or 0) .. (waits and '+' or ' ') .. text .. ' ' .. (owner or '') end
  redis.call('HSET', NODE, line, text)
end
