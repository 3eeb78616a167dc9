-- Functions for ACQUIRE, ENQUEUE, CONFIRM, EXTEND and BACKFILL. Only a voting node runs these.

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- Returns the node's facts for a vote; or nil and the refusal: a mismatch, see node.lua, or
-- {'not-voting'}.
local function voting_node()
  if not voter then
    local fields = redis.call('HMGET', NODE,
      'history', 'vote', 'floor', 'max', 'members', 'max_ttl', 'longest', 'opened', 'rotated', 'before')
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
      has_lost_before = has_lost_before(fields[10]),
    }
  end
  local refusal = mismatch(voter.members)
  if refusal then return nil, refusal end
  if voter.history ~= own_history() or voter.has_lost_before then return nil, {'not-voting'} end
  if not voter.place then
    voter.place = #voters + 1
    voters[voter.place] = voter.vote
  end
  return voter
end

-- The highest token that this node can have given for a resource. `last` is the token of the lock
-- record. The record may be older than the node's last readmission, so tokens up to `floor` are
-- possible, too. If the record was forgotten, tokens up to `max` are possible.
local function highest_given(last) return last and math.max(last, voter.floor) or voter.max end

-- Returns whether a record of the caller's lease proves that this node granted no later lease
-- before. `token` is that of the caller's lease, or a number that this node has reported.
--
-- - The first token that was given with the lease is above every earlier one of this node. So if it
--   is no higher than `token`, no later lease was granted here before.
-- - BACKFILL has made sure of it; see backfill.lua.
--
-- A record that proves nothing is from an ACQUIRE that arrived late, perhaps after a later lease.
-- Nothing is known of a record of an earlier release, so it is believed.
local function is_proven(last, origin, token)
  return first_token(last, origin) <= token
end

-- Stores a number as the token of these resources, and reports it. It is for the owner of a lease
-- that this node has lost. No token that this node has given for them is above the number, and each
-- later token is above it.
-- The owner keeps the locks that have an end in `ends` (ms), with their origins and tokens. Nobody
-- holds the others.
--
-- - reply: {'not-held', number, voter}; see `voters` in node.lua
local function note_number(number, from, to, owner, ends, origins, tokens)
  for i = from, to do
    write(KEYS[i], number, ends[i] and owner, ends[i], ends[i] and kept_origin(origins[i], tokens[i], number))
  end
  return {'not-held', token_text(number), voter.place}
end

-- Remembers that a lease may last this long (ms). The recovery wait depends on it; see admit.lua.
local function note_ttl(ttl)
  if tonumber(ttl) > voter.longest then
    redis.call('HSET', NODE, 'longest', ttl)
    voter.longest = tonumber(ttl)
  end
end

-- Returns the time (ms) for which another client's lease may hold up the caller.
-- If more is left of it than this node ever granted, the clock was set back since. In truth, no
-- more is left than the longest lease. So the record gets that end. Otherwise a crashed holder
-- would hold up others until the clock has caught up.
local function lease_left(queue, token, holder, till, origin)
  local left = till - own_time_ms()
  if left <= voter.longest then return left end
  write_though_full()
  write(queue, token, holder, own_time_ms() + voter.longest, origin)
  return voter.longest
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
-- Returns whether NODE may replace BEFORE, which is dropped then. So all leases in BEFORE must be
-- over. None was written to it since `rotated`.
local function may_rotate(fence_ttl)
  return voter.opened and is_old(fence_ttl) and math.abs(own_time_ms() - voter.rotated) > voter.longest
end

-- If NODE is old, renames it to BEFORE, and begins a new NODE with the node's facts about itself.
-- The records in BEFORE can still be read until NODE is old again.
-- If the clock has gone back, the hash counts as new. If the clock then jumps forward, NODE looks
-- old at once, while leases in BEFORE may still be valid. So may_rotate also checks `rotated`.
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
  redis.call('HSET', NODE, 'opened', digits(now), 'rotated', digits(voter.rotated),
    'before', redis.call('EXISTS', BEFORE))
  -- Only after the write: if Redis refuses it, the other calls of this script must not see the
  -- time.
  voter.opened = now
end

-- Makes room if memory is full: drops BEFORE as soon as no lease in it can be valid, even before
-- the fence ttl is over. Dropping needs no memory, and Redis accepts all writes of the script after
-- it.
--
-- While BEFORE must stay, resources that have a record in NODE can still be locked. That needs only
-- a few bytes for each lock. Other resources are refused.
make_room = function(from, to)
  if not voting_node() then return false end
  if may_rotate(0) then return (pcall(rotate, 0)) end
  for _, record in ipairs(redis.call('HMGET', NODE, unpack(KEYS, from, to))) do
    if not record then return false end
  end
  write_though_full()
  return true
end

-- Stores the token, the owner and the end (ms) of every lock. `max` is stored before them, so it is
-- never below the token of a record.
local function grant(token, fence_ttl, from, to, owner, ends, origins)
  rotate(fence_ttl)
  if token > voter.max then
    redis.call('HSET', NODE, 'max', token_text(token))
    voter.max = token
  end
  for i = from, to do write(KEYS[i], token, owner, ends[i], origins[i]) end
  return {'granted', token_text(token), voter.place}
end
