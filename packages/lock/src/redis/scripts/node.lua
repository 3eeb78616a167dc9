-- Put before every other script: what this node knows of itself.
-- KEYS[1] is always the node's own hash:
--   run_id    the process and the replication history in which this incarnation was admitted, see own_run_id
--   gen       generation of this incarnation; grows with each admission of a node of this name
--   roster    highest generation known of every node, comma separated, in the order of the sorted names
--   floor     what max was when this incarnation was admitted
--   max       the highest token that this node ever gave or confirmed, over all resources
--   members   digest of the sorted node names and this node's own: clients that name the nodes otherwise are refused
--   max_ttl   the longest lease in milliseconds that this node grants
--   incarnation, seen_run_id   of this life of the data: a random name, given by the first script that finds it not
--             admitted, and the process

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- An admission ends with the process, and with its replication history: a master that was a replica for a while may come back
-- with older data, of a replica that had not seen all its votes, in the same process.
local function own_run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
    string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
end

-- Names this life of the data, unless it has a name. A flush takes the name away, though the process and its run id stay.
local function stamp(name)
  local run_id = own_run_id()
  if redis.call('HGET', KEYS[1], 'seen_run_id') == run_id then return end
  redis.call('HSET', KEYS[1], 'seen_run_id', run_id, 'incarnation', name)
end

-- The node's fields, or nil and the refusal that a voter must answer. `name` is random; see stamp.
local function admitted_node(members, name)
  local fields = redis.call('HMGET', KEYS[1], 'run_id', 'gen', 'roster', 'floor', 'max', 'members', 'max_ttl')
  if fields[6] and fields[6] ~= members then return nil, {'wrong-members'} end
  if not fields[1] or fields[1] ~= own_run_id() then
    stamp(name)
    return nil, {'not-admitted'}
  end
  return {
    gen = fields[2],
    roster = fields[3],
    floor = tonumber(fields[4]),
    max = tonumber(fields[5]),
    max_ttl = tonumber(fields[7]),
  }
end

-- Stores the token for every resource, whose fences are KEYS 3, 5, 7 …, and as the node's highest.
local function store_token(node, token, fence_ttl)
  local digits = string.format('%.0f', token)
  for i = 3, #KEYS, 2 do redis.call('SET', KEYS[i], digits, 'PX', fence_ttl) end
  if token > node.max then redis.call('HSET', KEYS[1], 'max', digits) end
  return digits
end
