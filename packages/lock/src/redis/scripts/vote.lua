-- Functions for ACQUIRE, ENQUEUE, CONFIRM, EXTEND and BACKFILL. Only a voting node runs these.

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- Returns the node's facts for a vote; or nil and the refusal: a mismatch, see node.lua, or
-- {'not-voting'}.
local function voting_node()
  if not voter then
    local fields = redis.call('HMGET', NODE,
      'history', 'vote', 'floor', 'max', 'members', 'max_ttl', 'longest', 'opened', 'rotated')
    voter = {
      history = fields[1],
      vote = fields[2],
      floor = tonumber(fields[3]),
      max = tonumber(fields[4]),
      members = fields[5],
      max_ttl = tonumber(fields[6]),
      longest = tonumber(fields[7]),
      opened = fields[8] and tonumber(fields[8]),
      rotated = tonumber(fields[9] or '0'),
    }
  end
  local refusal = mismatch(voter.members)
  if refusal then return nil, refusal end
  if voter.history ~= own_history() then return nil, {'not-voting'} end
  if not voter.place then
    voter.place = #voters + 1
    voters[voter.place] = voter.vote
  end
  return voter
end

-- The highest token that this node can have given for a resource. If the node has forgotten the
-- last one, only `max` is known to be above every token of the resource.
local function highest_given(last) return last and math.max(last, voter.floor) or voter.max end

-- Notes a number for these resources, and reports it. No token given for them until now is above
-- the number. Each later token is above it.
-- The owner holds the locks with a time in `ends` (ms). Nobody holds the others.
--
-- - reply: {'not-held', number, voter}
local function note_number(number, from, to, owner, ends)
  for i = from, to do write(KEYS[i], number, ends[i] and owner, ends[i]) end
  return {'not-held', token_text(number), voter.place}
end

-- Remembers that a lease may last this long (ms). The recovery wait depends on it; see admit.lua.
local function note_ttl(ttl)
  if tonumber(ttl) > voter.longest then
    redis.call('HSET', NODE, 'longest', ttl)
    voter.longest = tonumber(ttl)
  end
end

-- Returns whether this hash is older than the longest lease, and than the fence ttl (ms).
local function is_old(fence_ttl)
  return own_time_ms() - voter.opened > math.max(tonumber(fence_ttl), voter.longest)
end

-- The fields that a new hash takes over.
local OWN = {
  'history', 'generation', 'roster', 'vote', 'floor', 'max', 'longest', 'members', 'name', 'names', 'max_ttl',
  'incarnation', 'seen_history', 'recovery_since', 'next_set', 'awaits', 'previous_set',
}
-- Returns whether this hash may become `node-before`. All leases in the present one must be over.
local function may_rotate(fence_ttl)
  return voter.opened and is_old(fence_ttl) and math.abs(own_time_ms() - voter.rotated) > voter.longest
end

-- Begins a new hash if this one is old, and copies the node's facts about itself. The records of
-- the old hash can still be read for at least as long.
-- If the clock has gone back, the hash counts as new. When the clock then jumps forward, leases in
-- `node-before` may still be valid. So that hash stays until they are over.
local function rotate(fence_ttl)
  local now, rotates = own_time_ms(), may_rotate(fence_ttl)
  if voter.opened and voter.opened <= now and not rotates then return end
  if rotates then
    local known = redis.call('HMGET', NODE, unpack(OWN))
    -- A user without permission for these commands keeps all records.
    redis.pcall('UNLINK', BEFORE)
    redis.pcall('RENAME', NODE, BEFORE)
    for i, field in ipairs(OWN) do
      if known[i] then redis.call('HSET', NODE, field, known[i]) end
    end
    voter.rotated = now
  end
  -- Only now: this write may be refused while other calls of the script succeed.
  redis.call('HSET', NODE, 'opened', digits(now), 'rotated', digits(voter.rotated))
  voter.opened = now
end

-- Full memory: the node forgets names earlier than `fenceTtlMs`, as soon as no valid lease is lost
-- with them. Removing them needs no memory. After that, Redis refuses no write of this script.
-- Before, names in this hash can still be locked. That needs a few bytes for each held lock, but
-- adds no names.
make_room = function(from, to)
  if not voting_node() then return false end
  if may_rotate(0) then return (pcall(rotate, 0)) end
  for _, record in ipairs(redis.call('HMGET', NODE, unpack(KEYS, from, to))) do
    if not record then return false end
  end
  write_though_full()
  return true
end

-- Stores the token for every resource, until the times in `ends` (ms).
-- The node's highest token is stored first, so it is never below a stored one.
local function grant(token, fence_ttl, from, to, owner, ends)
  rotate(fence_ttl)
  if token > voter.max then
    redis.call('HSET', NODE, 'max', token_text(token))
    voter.max = token
  end
  for i = from, to do write(KEYS[i], token, owner, ends[i]) end
  return {'granted', token_text(token), voter.place}
end
