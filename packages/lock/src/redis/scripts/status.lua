-- STATUS: reports the facts that an operator needs about this node. It writes nothing. If the data
-- is of another storage version, it reads only `members`.
--
-- - reply: {'status', …}, with the fields of INSPECT's reply, and then:
--   - time (ms) that the node has waited for readmission
--   - server with its version, and role
--   - eviction policy; noeviction if memory has no limit
--   - aof_enabled (1|0), time (ms)
--   - members, name, names
--   - used_memory and maxmemory (bytes)
--   - number of lock records; empty if this user may not count them
--   - next_set, awaits, previous_set and max_ttl; empty if there is none
commands.status = function()
  local function info(section, field)
    return string.match(redis.call('INFO', section), '\n' .. field .. ':([^\r\n]*)')
  end

  local members = redis.call('HGET', NODE, 'members')
  local fields = other_version(members) and {} or redis.call('HMGET', NODE,
    'incarnation', 'history', 'generation', 'roster', 'max', 'longest', 'recovery_since', 'seen_history', 'name', 'names',
    'next_set', 'awaits', 'previous_set', 'max_ttl', 'before')
  local own = own_history()
  local waited = own and fields[8] == own and fields[7] and math.max(0, own_time_ms() - tonumber(fields[7])) or 0
  local records = 0
  for _, key in ipairs({NODE, BEFORE}) do
    local count = redis.pcall('HLEN', key)
    records = type(count) == 'number' and records and records + count
    -- Does not count the fields about the node itself. Each is looked up, because another storage
    -- version may lack some of them.
    for _, field in ipairs(records and count > 0 and redis.call('HMGET', key, 'opened', 'rotated', 'before', unpack(OWN)) or {}) do
      if field then records = records - 1 end
    end
  end
  local valkey = info('server', 'valkey_version')
  local is_voting = own and fields[2] == own and not has_lost_before(fields[15])
  return {
    'status', own or '', fields[1] or '', is_voting and 1 or 0, fields[3] or '0', fields[4] or '', fields[5] or '0',
    fields[6] or '0', digits(waited),
    valkey and 'Valkey ' .. valkey or 'Redis ' .. (info('server', 'redis_version') or 'unknown'),
    info('replication', 'role') or 'unknown',
    info('memory', 'maxmemory') == '0' and 'noeviction' or info('memory', 'maxmemory_policy') or 'unknown',
    info('persistence', 'aof_enabled') or '0',
    digits(own_time_ms()),
    members or '', fields[9] or '', fields[10] or '',
    info('memory', 'used_memory') or '0', info('memory', 'maxmemory') or '0', records or '',
    fields[11] or '', fields[12] or '', fields[13] or '', fields[14] or '',
  }
end
