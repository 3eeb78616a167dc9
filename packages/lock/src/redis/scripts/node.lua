-- Put before every other script: what this node knows of itself.
-- KEYS[1] is always the node's own hash:
--   run_id    the process in which this incarnation was admitted; an admission ends with the process
--   gen       generation of this incarnation; grows with each admission of a node of this name
--   roster    highest generation known of every node, comma separated, in the order of the sorted names
--   floor     what max was when this incarnation was admitted
--   max       the highest token that this node ever gave or confirmed, over all resources
--   members   digest of the sorted node names: clients that name the nodes otherwise are refused
--   max_ttl   the longest lease in milliseconds that this node grants
--   incarnation, incarnation_run_id   random name of this life of the data, given when it was first inspected

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

local function own_run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- The node's fields, or nil and the refusal that a voter must answer.
local function admitted_node(members)
  local fields = redis.call('HMGET', KEYS[1], 'run_id', 'gen', 'roster', 'floor', 'max', 'members', 'max_ttl')
  if fields[6] and fields[6] ~= members then return nil, {'wrong-members'} end
  if not fields[1] or fields[1] ~= own_run_id() then return nil, {'not-admitted'} end
  return {
    gen = fields[2],
    roster = fields[3],
    floor = tonumber(fields[4]),
    max = tonumber(fields[5]),
    max_ttl = tonumber(fields[7]),
  }
end

-- Stores the token for every resource, in KEYS from `first` on by twos, and as the node's highest.
local function store_token(node, token, first, fence_ttl)
  local digits = string.format('%.0f', token)
  for i = first, #KEYS, 2 do redis.call('SET', KEYS[i], digits, 'PX', fence_ttl) end
  if token > node.max then redis.call('HSET', KEYS[1], 'max', digits) end
  return digits
end
