-- Several ACQUIREs of one resource each, by different owners, while nobody waits for any of them.
-- Does the same as acquire.lua, but reads all records together, and writes all locks together.
--
-- If it returns nothing, `own` has the replies of the calls that it decided. `acquire.lua` decides
-- the other calls, such as those for a lock that another owner holds.
--
-- - owners: the first argument of each call
-- - values: ttl (ms), fence ttl (ms)
-- - queues: the wait queue of each resource
-- - own: receives replies, by the place of the call
-- - returns: nothing, or {"each": tokens, "like": ["granted", voter]} as JSON, see calls.lua
at_once.acquire = function(owners, values, queues, own)
  local VALUES = 2
  local count, node, ttl, fence_ttl = #queues, voting_node(), tonumber(values[1]), values[2]
  if #values ~= VALUES or not node or ttl > node.max_ttl or ttl > node.longest then return end
  local now = own_time_ms()
  if not node.opened or node.opened > now or is_old(fence_ttl) then return end

  local found, before = redis.call('HMGET', NODE, unpack(queues)), nil
  local n, texts, fields, seen, max, floor = 0, {}, {}, {}, node.max, node.floor
  local till = time_text(now + ttl) .. ' '
  for i, queue in ipairs(queues) do
    local record = found[i]
    if seen[queue] then return end
    seen[queue] = true
    if not record then
      if not before then
        if redis.call('EXISTS', unpack(queues)) > 0 then return end
        before = redis.call('HMGET', BEFORE, unpack(queues))
      end
      record = before[i]
    end
    if not record or #record == TOKEN_DIGITS then
      local last = record and tonumber(record)
      if record and not last then return end
      if last and last < floor then last = floor end
      local token = (last or max) + 1
      if token > TOKEN_MAX then return end
      if token > max then max = token end
      local text = token_text(token)
      texts[i] = text
      n = n + 2
      fields[n - 1], fields[n] = queue, till .. text .. 'A' .. owners[i]
    elseif is_over(record) or string.sub(record, OWNER_AT) == owners[i] then
      return
    end
  end
  if n == 0 then return end

  redis.call('HSET', NODE, 'max', token_text(max), unpack(fields))
  -- Only after the write: if Redis refuses the write, it raises an error here, and no token was
  -- given. `acquire.lua` then decides all calls.
  node.max = max
  if n == 2 * count then return '{"each":["' .. table.concat(texts, '","') .. '"],"like":["granted",' .. node.place .. ']}' end
  for i = 1, count do own[i] = texts[i] and '["granted","' .. texts[i] .. '",' .. node.place .. ']' end
end
