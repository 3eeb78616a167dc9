-- What this node knows of itself. This file begins every script, calls.lua ends it, and between them stand the commands, each in a
-- file of its own, and what those need. A command is a function of the place of its first key in KEYS, that of its last, and its
-- arguments, which are strings; its reply is a list.
-- KEYS[1] is always the node's own hash, and KEYS[2] what that was before: see ledger.lua, for what it has of each resource. Of itself:
--   history    the replication history in which this incarnation was admitted, see own_history
--   gen       generation of this incarnation, under which its votes count: it may be raised. Every later incarnation of a node of
--             this name has a higher one
--   roster    of every node, in the order of the sorted names, the latest incarnation that this one has promised to respect:
--             generation:incarnation, comma separated; 0: where there is none
--   vote      what every vote is given as: gen, incarnation and roster, separated by blanks
--   floor     what max was when this incarnation was admitted
--   max       the highest token that this node ever gave or confirmed, over all resources
--   longest   the longest lease in milliseconds that this node ever granted
--   members   the storage version, a blank, and a digest of all node names and this node's own. A
--             client that sends another text is refused. Every storage version keeps this field
--   name, names   this node's own name, and all names as JSON. A refused client is sent both
--   max_ttl   the longest lease in milliseconds that this node would grant
--   opened    when this hash was begun, by its clock (ms), unless the clock has gone back since
--   turned    when that became the one before which was this one until then
--   incarnation, seen_history   of this life of the data: a name that no other has, and the history, both stamped by the
--             first INSPECT that finds it new
--   out_since when the first ADMIT was refused since this life must wait, by its clock (ms)

local NODE, BEFORE = KEYS[1], KEYS[2]
-- The storage version of the client and the digest of its node names, as in the field `members`.
local MEMBERS = ARGV[1]

-- Lua would print a number of 16 digits with an exponent. C's integers may have 32 bits; `%.0f` takes half as long again.
local HALF = 100000000
local function halves(format, number)
  local low = number % HALF
  return string.format(format, (number - low) / HALF, low)
end

-- A token as it is kept, and as clients are told.
local function token_text(token) return halves('%08d%08d', token) end

local function digits(number) return number < HALF and string.format('%d', number) or halves('%d%08d', number) end

-- An admission ends with the process, and with its replication history: a master that was a replica for a while may come back
-- with older data, of a replica that had not seen all its votes, in the same process. A master begins a new history whenever it
-- starts or is promoted. A replica keeps its master's id while a sync replaces its data. So only a
-- master has a history: nil for all other roles, also for a replica that can be written.
local history, role
local function own_history()
  if not role then
    local replid
    role, replid = string.match(redis.call('INFO', 'replication'), 'role:([^\r\n]+).-master_replid:(%x+)')
    history = role == 'master' and replid or nil
  end
  return history
end

local time_ms
local function own_time_ms()
  if not time_ms then
    local time = redis.call('TIME')
    time_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return time_ms
end

-- The refusal of a client with another storage version than the one in the field `members`; nil for
-- the same version, and if the field was never set.
local function other_version(members)
  local version = members and (string.match(members, '^(%d+) ') or '0')
  if version and version ~= string.match(MEMBERS, '^%d+') then return {'wrong-version', version} end
end

-- The refusal of a client for which this server is no node: it is no master, or was set up with
-- another storage version or other names.
local function mismatch(members)
  if not own_history() then return {'not-master', role or 'unknown'} end
  if not members or members == MEMBERS then return nil end
  local refusal = other_version(members)
  if refusal then return refusal end
  local set_up = redis.call('HMGET', NODE, 'name', 'names')
  return {'config-mismatch', set_up[1] or '', set_up[2] or ''}
end

-- What votes of this script were given as: all of them the same, as a rule.
local voters = {}
-- What a vote needs of the node's hash; nil where that has not been read, or may have changed since.
local voter

-- If memory is full, Redis refuses the first write of a script, unless that write needs no memory. So this write comes
-- first in all that must not be refused: extending, giving up, confirming, and the way back to a vote.
local function write_though_full() redis.call('HDEL', NODE, '') end

local commands = {}
-- Some do what is usual in a run of calls of one key at once: a function of their first arguments, of the other ones, and of the keys. It has
-- the reply of all, as calls.lua tells it, or nothing; what it did of some it adds to the last argument: the reply of each, by its place.
local at_once = {}

-- Makes room where memory is full, and returns whether writes of this script succeed now; see vote.lua.
local make_room
-- Returns whether the command succeeded, and its reply or the error. A refused command has written nothing: it runs again
-- if there is room now.
local function carry_out(name, from, to, ...)
  local ok, reply = pcall(commands[name], from, to, ...)
  if ok or not make_room then return ok, reply end
  -- Older servers raise a string, later ones a table.
  local message = type(reply) == 'table' and reply.err or tostring(reply)
  if string.find(message, 'OOM command not allowed', 1, true) and make_room(from, to) then
    return pcall(commands[name], from, to, ...)
  end
  return false, reply
end
