-- Several ACQUIREs of one resource each, by different owners, while nobody waits for any of them.
-- Does the same as acquire.lua, but with one Redis command for all of them.
--
-- If it does not return the reply of all, `own` has the replies of the calls that it decided.
-- `acquire.lua` decides the rest, such as locks that another owner holds.
--
-- - owners: the first argument of each call
-- - values: ttl (ms), fence ttl (ms)
-- - lines: the wait queue of each resource
-- - own: receives replies, by the place of the call
-- - returns: nothing, or {"each": tokens, "like": ["granted", voter]} as JSON, see calls.lua
at_once.acquire = function(owners, values, lines, own)
  local VALUES = 2
  local count, node, ttl, fence_ttl = #lines, admitted(), tonumber(values[1]), values[2]
  if #values ~= VALUES or not node or ttl > node.max_ttl or ttl > node.longest then return end
  local now = own_time_ms()
  if not node.opened or node.opened > now or is_full(fence_ttl) then return end

  local found, before = redis.call('HMGET', NODE, unpack(lines)), nil
  local n, texts, entries, seen, max, floor = 0, {}, {}, {}, node.max, node.floor
  local till = time_text(now + ttl) .. ' '
  for i, line in ipairs(lines) do
    local entry = found[i]
    if seen[line] then return end
    seen[line] = true
    if not entry then
      if not before then
        if redis.call('EXISTS', unpack(lines)) > 0 then return end
        before = redis.call('HMGET', BEFORE, unpack(lines))
      end
      entry = before[i]
    end
    if not entry or #entry == TOKEN_DIGITS then
      local last = entry and tonumber(entry)
      if entry and not last then return end
      if last and last < floor then last = floor end
      local token = (last or max) + 1
      if token > TOKEN_MAX then return end
      if token > max then max = token end
      local text = token_text(token)
      texts[i] = text
      n = n + 2
      entries[n - 1], entries[n] = line, till .. text .. ' ' .. owners[i]
    elseif is_over(entry) or string.sub(entry, OWNER_AT) == owners[i] then
      return
    end
  end
  if n == 0 then return end

  redis.call('HSET', NODE, 'max', token_text(max), unpack(entries))
  -- Only now: if Redis refuses the write, no token is stored. `acquire.lua` then decides all calls.
  node.max = max
  if n == 2 * count then return '{"each":["' .. table.concat(texts, '","') .. '"],"like":["granted",' .. node.place .. ']}' end
  for i = 1, count do own[i] = texts[i] and '["granted","' .. texts[i] .. '",' .. node.place .. ']' end
end
