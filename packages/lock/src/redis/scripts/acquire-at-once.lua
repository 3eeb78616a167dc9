-- Several ACQUIREs of one resource each, by different owners, with nobody in any line: as acquire.lua, with one command of Redis for all
-- where there is one. What others hold is left to that.
at_once.acquire = function(run, from, replies)
  local KEYS_EACH, VALUES_EACH = 1, 3
  local count, before, node = run[4], #replies, admitted()
  if run[2] ~= KEYS_EACH or run[3] ~= VALUES_EACH or not node then return false end
  local now, fence_ttl = own_time_ms(), run[7]
  if not node.opened or node.opened > now or is_full(fence_ttl) then return false end

  local lines = {unpack(KEYS, from, from + count - 1)}
  if redis.call('EXISTS', unpack(lines)) > 0 then return false end
  local found, earlier = redis.call('HMGET', LEDGER, unpack(lines)), nil
  local n, entries, seen, ends, max, floor = 0, {}, {}, {}, node.max, node.floor
  local voter = '",' .. node.place .. ']'
  for i = 1, count do
    local line, owner, ttl, entry = lines[i], run[2 + 3 * i], run[3 + 3 * i], found[i]
    if seen[line] or run[4 + 3 * i] ~= fence_ttl then return false end
    seen[line] = true
    if not entry then
      earlier = earlier or redis.call('HMGET', EARLIER, unpack(lines))
      entry = earlier[i]
    end
    if not entry or #entry == TOKEN_DIGITS then
      local last = entry and tonumber(entry)
      if entry and not last then return false end
      if last and last < floor then last = floor end
      local token = (last or max) + 1
      if token > TOKEN_MAX then return false end
      if token > max then max = token end
      if not ends[ttl] then
        local ms = tonumber(ttl)
        if ms > node.max_ttl or ms > node.longest then return false end
        ends[ttl] = time_text(now + ms) .. ' '
      end
      local text = digits(token)
      replies[before + i] = '["granted","' .. text .. voter
      if #text < TOKEN_DIGITS then text = padded(text, TOKEN_DIGITS) end
      n = n + 2
      entries[n - 1], entries[n] = line, ends[ttl] .. text .. ' ' .. owner
    elseif is_over(entry) or string.sub(entry, OWNER_AT) == owner then
      return false
    end
  end
  if n == 0 then return false end

  -- First, so that it is never below a token that was stored.
  if max > node.max then redis.call('HSET', KEYS[1], 'max', digits(max)) end
  node.max = max
  redis.call('HSET', LEDGER, unpack(entries))
  return true
end
