-- ACQUIRE, if it is the only call of the script, for one resource that is free and has no waiters.
-- In every other case this code returns nothing, the script goes on, and acquire.lua decides.
--
-- It creates no function, and runs before the files that do. Lua creates every function anew when a
-- script runs. Creating those of the other files costs as much as this whole file.
--
-- - KEYS: the node's hash, the hash that it replaced, the wait queue of the resource
-- - ARGV: members, command, owner, ttl (ms), fence ttl (ms)
-- - reply: `granted TOKEN 1`, then the field `vote` on a second line. The 1 is its place, as in the
--   replies of acquire.lua
if #KEYS == 3 then
  local NODE, BEFORE, QUEUE = KEYS[1], KEYS[2], KEYS[3]
  local MEMBERS, OWNER, TTL, FENCE_TTL = ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
  -- Facts of the node, see node.lua, and the resource's lock record, see lock-table.lua.
  local history, members, max_ttl, longest, max_text, floor, opened, vote, before, record = unpack(redis.call('HMGET', NODE,
    'history', 'members', 'max_ttl', 'longest', 'max', 'floor', 'opened', 'vote', 'before', QUEUE))
  record = record or redis.call('HGET', BEFORE, QUEUE)
  local info, time = redis.call('INFO', 'replication'), redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- Age of the node's hash (ms); negative if it is unknown, or if the clock has gone back.
  local age = opened and now - opened or -1

  -- The server is a master in the history in which it was admitted as a node of this client, and
  -- has kept both hashes.
  local is_voting = history and string.find(info, 'role:master', 1, true)
    and string.find(info, 'master_replid:' .. history, 1, true) and members == MEMBERS
    and (before ~= '1' or redis.call('EXISTS', BEFORE) == 1)
  -- The grant changes nothing else: it sets no new `longest`, and the hash is too young to rotate.
  local is_usual = is_voting and TTL <= tonumber(max_ttl) and TTL <= tonumber(longest) and age >= 0 and age <= FENCE_TTL
  -- A record of 16 digits is the last token of a lock that is free and has no waiters.
  local last = record and #record == 16 and tonumber(record)
  if is_usual and (last or not record and redis.call('EXISTS', QUEUE) == 0) then
    local max = tonumber(max_text)
    -- Above all tokens that this node can have given for it; see highest_given in vote.lua.
    local token = (last and math.max(last, tonumber(floor)) or max) + 1
    if token <= 9007199254740991 then -- 2^53-1, see TOKEN_MAX in vote.lua
      -- The record of a taken lock: end, blank, token, origin, owner; see lock-table.lua.
      local HALF, till = 100000000, now + TTL
      local till_low, token_low = till % HALF, token % HALF
      local taken = string.format('%07d%08d %08d%08dA', (till - till_low) / HALF, till_low, (token - token_low) / HALF, token_low)
      local token_text = string.sub(taken, 17, 32)
      local done = redis.pcall('HSET', NODE, 'max', token > max and token_text or max_text, QUEUE, taken .. OWNER)
      -- If memory is full, this is an error, not a number.
      if type(done) == 'number' then return 'granted ' .. token_text .. ' 1\n' .. vote end
    end
  end
end
