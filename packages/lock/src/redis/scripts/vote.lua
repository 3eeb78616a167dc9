-- What ACQUIRE, CONFIRM and EXTEND have in common: they are votes, and only a node that was admitted has one.

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- The voter that this node is, or nil and the refusal that it must answer.
local function admitted()
  if not voter then
    local fields = redis.call('HMGET', KEYS[1],
      'history', 'gen', 'incarnation', 'roster', 'floor', 'max', 'members', 'max_ttl', 'longest')
    voter = {
      history = fields[1],
      members = fields[7],
      floor = tonumber(fields[5]),
      max = tonumber(fields[6]),
      max_ttl = tonumber(fields[8]),
      longest = tonumber(fields[9]),
      told = {fields[2], fields[3], fields[4]},
    }
  end
  if voter.members and voter.members ~= MEMBERS then return nil, {'wrong-members'} end
  if not voter.history or voter.history ~= own_history() then return nil, {'not-admitted'} end
  if not voter.place then
    voter.place = #voters + 1
    voters[voter.place] = voter.told
  end
  return voter
end

-- The highest token that this node can have given for the resource.
-- Where its fence is gone, only `max` is known to be above every token of that resource.
local function highest_given(fence)
  local token = redis.call('GET', fence)
  return token and math.max(tonumber(token), voter.floor) or voter.max
end

-- Stores the token for every resource, whose fences stand at every step-th key, and as the node's highest.
local function grant(token, fence_ttl, first_fence, to, step)
  local text = digits(token)
  for i = first_fence, to, step do redis.call('SET', KEYS[i], text, 'PX', fence_ttl) end
  if token > voter.max then
    redis.call('HSET', KEYS[1], 'max', text)
    voter.max = token
  end
  return {'granted', text, voter.place}
end

-- Remembers that a lease may last as long as this; see admit.lua.
local function note_ttl(ttl)
  if tonumber(ttl) > voter.longest then
    redis.call('HSET', KEYS[1], 'longest', ttl)
    voter.longest = tonumber(ttl)
  end
end
