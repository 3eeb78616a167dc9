-- The node's facts about itself, and the frame of every script.
-- A script consists of this file, the files that its commands need, the commands, and calls.lua or
-- alone.lua. Each command has its own file. A command is a function of the places of its first and
-- last key in KEYS, and of its arguments, which are strings. It returns its reply as a list.
--
-- An incarnation is the data of this node from a start, flush, failover or restore until the next.
--
-- KEYS[1] is the node's hash. KEYS[2] is the hash that it replaced. Both have lock records, see
-- lock-table.lua. These fields are about the node itself:
--
-- - `history`: the replication history in which this incarnation was admitted; see own_history
-- - `generation`: orders the incarnations of this node. This incarnation's votes count under it. It
--   may be raised. Every later incarnation of a node of this name has a higher one
-- - `roster`: for each node, the latest incarnation that this node has promised to respect. The
--   order is that of the sorted names. Each is written generation:incarnation, or 0: if none is
--   known, with commas between
-- - `vote`: text that every vote carries: generation, incarnation and roster, separated by blanks
-- - `floor`: value of `max` when this incarnation was admitted
-- - `max`: the highest token that this node ever gave or confirmed, over all resources
-- - `longest`: the longest lease in ms that this node ever granted
-- - `members`: the storage version, a blank, and a digest of all node names and this node's own.
--   A client that sends another text is refused. Every storage version keeps this field
-- - `name`, `names`: this node's own name, and all names as JSON. A refused client gets both
-- - `max_ttl`: the longest lease in ms that this node would grant. A readmitted node takes it over
--   from the others
-- - `opened`: time (ms) at which this hash began, or at which the clock was found to have gone back
-- - `rotated`: time (ms) at which an old hash last became KEYS[2]
-- - `before`: 1 if KEYS[2] exists; see has_lost_before
-- - `incarnation`, `seen_history`: the unique name of this incarnation, and its history. The first
--   INSPECT that finds the incarnation new writes both
-- - `recovery_since`: time (ms) at which the recovery wait of this incarnation began: that of the
--   first ADMIT, which it refused
-- - `next_set`: the node set to which this one moves, if this node is sealed; see seal.lua
-- - `awaits`, `previous_set`: the node waits for a move from that set; see prepare.lua. After the
--   move, only `previous_set` stays

local NODE, BEFORE = KEYS[1], KEYS[2]
-- The client's storage version, and its digest of the node names, as in the field `members`. After
-- SEAL, the field has SEALED at its end.
local MEMBERS, SEALED = ARGV[1], ' sealed'

-- Lua would print a number of 16 digits with an exponent. `%d` may be limited to 32 bits in C, and
-- `%.0f` takes 50 % longer. So numbers are printed in two halves.
local HALF = 100000000
local function halves(format, number)
  local low = number % HALF
  return string.format(format, (number - low) / HALF, low)
end

-- A token as in records and replies.
local function token_text(token) return halves('%08d%08d', token) end

local function digits(number) return number < HALF and string.format('%d', number) or halves('%d%08d', number) end

-- The replication history of a master; nil for other roles, even for a writable replica.
--
-- A master begins a new history, `master_replid`, whenever its process starts or it is promoted. A
-- node may vote only in the history in which it was admitted. An uninterrupted process is no proof:
-- a master may become a replica, take over data that lacks some of its votes, and be promoted
-- again. A replica shows its master's id while a sync replaces its data. So this function gives no
-- history to replicas.
local history, role
local function own_history()
  if not role then
    local replid
    role, replid = string.match(redis.call('INFO', 'replication'), 'role:([^\r\n]+).-master_replid:(%x+)')
    history = role == 'master' and replid or nil
  end
  return history
end

-- Returns whether KEYS[2] was lost alone, for example evicted. Leases may have been in it. So the
-- node does not vote, as if it had lost everything: see inspect.lua. `before` is the field of NODE.
-- Releases of Fenced that do not know the field keep none of it when they rotate. KEYS[2] counts as
-- kept then.
local function has_lost_before(before) return before == '1' and redis.call('EXISTS', BEFORE) == 0 end

local time_ms
local function own_time_ms()
  if not time_ms then
    local time = redis.call('TIME')
    time_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return time_ms
end

-- The refusal of a client with another storage version than that of the field `members`. Nil for
-- the same version, and if the field was never set.
local function other_version(members)
  local version = members and (string.match(members, '^(%d+) ') or '0')
  if version and version ~= string.match(MEMBERS, '^%d+') then return {'wrong-version', version} end
end

-- The refusal of a client for which this server is no node. The server is no master, or it was set
-- up with another storage version or other names. Nil for every other client.
--
-- - replies:
--   - {'not-master', role}
--   - {'wrong-version', version}
--   - {'config-mismatch', name, names, next_set}; the names and the next set if it is sealed
local function mismatch(members)
  if not own_history() then return {'not-master', role or 'unknown'} end
  if not members or members == MEMBERS then return nil end
  local refusal = other_version(members)
  if refusal then return refusal end
  local set_up = redis.call('HMGET', NODE, 'name', 'names', 'next_set')
  return {'config-mismatch', set_up[1] or '', set_up[2] or '', set_up[3] or ''}
end

-- The different `vote` texts of this script. Usually there is one. A reply names its text by the
-- place in this list, called `voter` in the headers of the commands.
local voters = {}
-- The fields of the node's hash that a vote needs; nil if they are unread or may have changed.
local voter
-- True if RELEASE has found this client's storage version, and no seal.
local is_own_version

-- If memory is full, Redis refuses the first write of a script, unless that write needs no memory.
-- Redis accepts all writes after an accepted one. So this write, which changes nothing, comes first
-- in every command that must succeed with full memory, such as EXTEND and RELEASE.
local function write_though_full() redis.call('HDEL', NODE, '') end

local commands = {}
-- Functions that do the usual case of a run of calls with one key each.
--
-- - arguments: the first argument of each call, the common arguments, the keys, an empty list
-- - returns: the replies of all calls as text, see calls.lua; or nothing
--
-- If it returns nothing, the list has the replies of the calls that it decided, by their places.
local at_once = {}

-- Makes room if memory is full. Returns whether writes of this script succeed now. See vote.lua.
local make_room
-- Runs a command. Returns whether it succeeded, and its reply or the error. If Redis refuses the
-- command because memory is full, nothing was written. The command then runs again if make_room
-- succeeds.
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
