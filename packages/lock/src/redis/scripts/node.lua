-- What this node knows of itself. The files of this folder make one script, this one first and calls.lua last; the others
-- each define a command, a function of its keys and arguments.
-- KEYS[1] is always the node's own hash:
--   history    the replication history in which this incarnation was admitted, see OWN_HISTORY
--   gen       generation of this incarnation, under which its votes count: it may be raised. Every later incarnation of a node of
--             this name has a higher one
--   roster    of every node, in the order of the sorted names, the latest incarnation that this one has promised to respect:
--             generation:incarnation, comma separated; 0: where there is none
--   floor     what max was when this incarnation was admitted
--   max       the highest token that this node ever gave or confirmed, over all resources
--   longest   the longest lease in milliseconds that this node ever granted
--   members   digest of the sorted node names and this node's own: clients that name the nodes otherwise are refused
--   max_ttl   the longest lease in milliseconds that this node would grant
--   incarnation, seen_history, seen_at   of this life of the data: a name that no other has, the history, and the clock (ms), all
--             stamped by the first INSPECT that finds it new

local TOKEN_MAX = 9007199254740991 -- 2^53-1: Lua numbers are doubles, and larger ones are rounded

-- Lua would print a number of 16 digits with an exponent.
local function digits(number) return string.format('%.0f', number) end

-- An admission ends with the process, and with its replication history: a master that was a replica for a while may come back
-- with older data, of a replica that had not seen all its votes, in the same process. A master begins a new history whenever it
-- starts or is promoted. A replica has its master's, and may answer nothing of what that was admitted for.
local role, replid = string.match(redis.call('INFO', 'replication'), 'role:(%a+).-master_replid:(%x+)')
local OWN_HISTORY = role == 'master' and replid or role .. replid

local commands = {}

local function own_time_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Begins a new life of the data. A request that is sent again brings its random name along once more, so the name has the
-- time in it, too: no two lives have the same.
local function begin_life(name)
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'seen_history', OWN_HISTORY, 'incarnation', string.sub(name, -8) .. '.' .. time[1] .. '.' .. time[2],
    'seen_at', digits(own_time_ms()))
end

-- The node's fields, or nil and the refusal that a voter must answer.
local function admitted_node(members)
  local fields = redis.call('HMGET', KEYS[1],
    'history', 'gen', 'incarnation', 'roster', 'floor', 'max', 'members', 'max_ttl', 'longest')
  if fields[7] and fields[7] ~= members then return nil, {'wrong-members'} end
  if not fields[1] or fields[1] ~= OWN_HISTORY then return nil, {'not-admitted'} end
  return {
    gen = fields[2],
    incarnation = fields[3],
    roster = fields[4],
    floor = tonumber(fields[5]),
    max = tonumber(fields[6]),
    max_ttl = tonumber(fields[8]),
    longest = tonumber(fields[9]),
  }
end

-- Each step-th of a command's keys, from the one at this place on.
local function every(step, keys, from)
  local list = {}
  for i = from, #keys, step do list[#list + 1] = keys[i] end
  return list
end

-- The highest token that this node can have given for the resources.
-- Where a fence is gone, only `max` is known to be above every token of that resource.
local function highest_given(node, fences)
  local highest = 0
  for _, key in ipairs(fences) do
    local fence = redis.call('GET', key)
    highest = math.max(highest, fence and math.max(tonumber(fence), node.floor) or node.max)
  end
  return highest
end

-- A vote: stores the token for every resource and as the node's highest, and says whose vote it is.
local function grant(node, fences, token, fence_ttl)
  for _, fence in ipairs(fences) do redis.call('SET', fence, digits(token), 'PX', fence_ttl) end
  if token > node.max then redis.call('HSET', KEYS[1], 'max', digits(token)) end
  return {'granted', digits(token), node.gen, node.incarnation, node.roster}
end

-- Remembers that a lease may last as long as this; see admit.lua.
local function note_ttl(node, ttl)
  if tonumber(ttl) > node.longest then redis.call('HSET', KEYS[1], 'longest', ttl) end
end

-- A roster as a list of {gen, incarnation}.
local function lives(roster)
  local list = {}
  for gen, incarnation in string.gmatch(roster, '(%d+):([^,]*)') do
    list[#list + 1] = {gen = tonumber(gen), incarnation = incarnation}
  end
  return list
end

local function as_roster(list)
  local parts = {}
  for place, life in ipairs(list) do parts[place] = digits(life.gen) .. ':' .. life.incarnation end
  return table.concat(parts, ',')
end
