-- What ACQUIRE, CONFIRM and EXTEND have in common: they are votes, and only a node that was admitted has one.

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- The voter that this node is, or nil and the refusal that it must answer: a mismatch, see node.lua, or {'not-voting'}.
local function admitted()
  if not voter then
    local fields = redis.call('HMGET', NODE,
      'history', 'vote', 'floor', 'max', 'members', 'max_ttl', 'longest', 'opened', 'turned')
    voter = {
      history = fields[1],
      told = fields[2],
      floor = tonumber(fields[3]),
      max = tonumber(fields[4]),
      members = fields[5],
      max_ttl = tonumber(fields[6]),
      longest = tonumber(fields[7]),
      opened = fields[8] and tonumber(fields[8]),
      turned = tonumber(fields[9] or '0'),
    }
  end
  local refusal = mismatch(voter.members)
  if refusal then return nil, refusal end
  if voter.history ~= own_history() then return nil, {'not-voting'} end
  if not voter.place then
    voter.place = #voters + 1
    voters[voter.place] = voter.told
  end
  return voter
end

-- The highest token that this node can have given for a resource. Where it has forgotten the last one, only `max` is known to be above
-- every token of that resource.
local function highest_given(last) return last and math.max(last, voter.floor) or voter.max end

-- Notes a number for these lines that no token given for any of them is above; each token that is given later is above it.
-- The owner has the locks of some until these times (ms), and nobody has the others.
-- Reply: {'not-held', number, voter}.
local function note_number(number, from, to, owner, ends)
  for i = from, to do write(KEYS[i], number, ends[i] and owner, ends[i]) end
  return {'not-held', token_text(number), voter.place}
end

-- Remembers that a lease may last as long as this; see admit.lua.
local function note_ttl(ttl)
  if tonumber(ttl) > voter.longest then
    redis.call('HSET', NODE, 'longest', ttl)
    voter.longest = tonumber(ttl)
  end
end

-- Whether this hash has become older than any lease, and than fences are to become (ms).
local function is_full(fence_ttl)
  return own_time_ms() - voter.opened > math.max(tonumber(fence_ttl), voter.longest)
end

-- Begins a new hash where this one is full, with all that the node knows of itself. What the full one has of resources is still found, as
-- long again. A clock that has gone back makes it as young as if it were new, and when it comes forward again, leases of the one before
-- need not be over: that stays until they are.
local OWN = {
  'history', 'gen', 'roster', 'vote', 'floor', 'max', 'longest', 'members', 'name', 'names', 'max_ttl', 'incarnation', 'seen_history',
  'out_since',
}
-- Whether the hash may become the one before now: every lease that the one before has is over.
local function may_turn(fence_ttl)
  return voter.opened and is_full(fence_ttl) and math.abs(own_time_ms() - voter.turned) > voter.longest
end

local function turn_over(fence_ttl)
  local now, turns = own_time_ms(), may_turn(fence_ttl)
  if voter.opened and voter.opened <= now and not turns then return end
  if turns then
    local known = redis.call('HMGET', NODE, unpack(OWN))
    -- Who may not do that never forgets.
    redis.pcall('UNLINK', BEFORE)
    redis.pcall('RENAME', NODE, BEFORE)
    for i, field in ipairs(OWN) do
      if known[i] then redis.call('HSET', NODE, field, known[i]) end
    end
    voter.turned = now
  end
  -- Not before: this may be refused, and other calls of the same script not.
  redis.call('HSET', NODE, 'opened', digits(now), 'turned', digits(voter.turned))
  voter.opened = now
end

-- Full memory: names are forgotten before `fenceTtlMs` is over, as soon as no lease can be lost with them. Removing them needs
-- no memory, and after it nothing in this script is refused. Until then names that this hash has can still be locked: that
-- takes a few bytes for each lock that is held, and no more names.
make_room = function(from, to)
  if not admitted() then return false end
  if may_turn(0) then return (pcall(turn_over, 0)) end
  for _, entry in ipairs(redis.call('HMGET', NODE, unpack(KEYS, from, to))) do
    if not entry then return false end
  end
  write_though_full()
  return true
end

-- Stores the token for every resource, and as the node's highest, first, so that it is never below one that was stored. The owner has the
-- locks until these times (ms).
local function grant(token, fence_ttl, from, to, owner, ends)
  turn_over(fence_ttl)
  if token > voter.max then
    redis.call('HSET', NODE, 'max', token_text(token))
    voter.max = token
  end
  for i = from, to do write(KEYS[i], token, owner, ends[i]) end
  return {'granted', token_text(token), voter.place}
end
