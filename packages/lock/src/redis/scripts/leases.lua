-- LEASES: returns the leases that a sealed node holds, in pieces. It writes nothing.
-- Only the incarnation that voted answers. If the node was restarted or flushed since, its data is
-- another incarnation, which may have forgotten a lease.
--
-- - ARGV: incarnation, hash (1|2: its place in KEYS), cursor ('0' at first), count
-- - replies:
--   - {'leases', next cursor, then for each lease: resource, owner, remaining (ms), first token};
--     see first_token in lock-table.lua
--   - {'changed'}
--   - a mismatch, see node.lua
commands.leases = function(_, _, incarnation, hash, cursor, count)
  local fields = redis.call('HMGET', NODE, 'members', 'history', 'incarnation', 'before')
  local is_sealed = fields[1] == MEMBERS .. SEALED
  local refusal = mismatch(is_sealed and MEMBERS or fields[1])
  if refusal then return refusal end
  if not is_sealed or fields[2] ~= own_history() or fields[3] ~= incarnation or has_lost_before(fields[4]) then
    return {'changed'}
  end
  -- The Redis client may put a prefix before each key. NODE has it, too, so the keys of the queues
  -- begin as NODE does.
  local begins = string.sub(NODE, 1, -#'node' - 1) .. 'queue:'
  local scanned = redis.call('HSCAN', KEYS[tonumber(hash)], cursor, 'COUNT', count)
  local reply = {'leases', scanned[1]}
  for i = 1, #scanned[2], 2 do
    local queue, record = scanned[2][i], scanned[2][i + 1]
    if string.sub(queue, 1, #begins) == begins then
      local token, owner, till, origin = parts_of(record)
      -- If both hashes have a record, that in the first one is newer.
      if owner and not (hash == '2' and redis.call('HGET', NODE, queue)) then
        local parts = {string.sub(queue, #begins + 1), owner, digits(till - own_time_ms()), token_text(first_token(token, origin))}
        for _, part in ipairs(parts) do reply[#reply + 1] = part end
      end
    end
  end
  return reply
end
