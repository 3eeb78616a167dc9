-- Several ACQUIREs of one resource each, by different owners, with nobody in any line: as acquire.lua, with one command of Redis for all
-- where there is one. What others hold is left to that.
at_once.acquire = function(run, from, replies)
  local KEYS_EACH, VALUES_EACH = 3, 3
  local count, before, node = run[4], #replies, admitted()
  if run[2] ~= KEYS_EACH or run[3] ~= VALUES_EACH or not node then return end

  local known = {}
  for i = 1, count do
    local at = from + (i - 1) * KEYS_EACH
    known[2 * i - 1], known[2 * i] = KEYS[at], KEYS[at + 1]
  end
  local found = redis.call('MGET', unpack(known))
  local standing, texts, seen, max = 0, {}, {}, node.max
  for i = 1, count do
    local lock, holder, last = known[2 * i - 1], found[2 * i - 1], found[2 * i]
    local owner, ttl = run[2 + 3 * i], tonumber(run[3 + 3 * i])
    if seen[lock] or ttl > node.max_ttl or ttl > node.longest then return end
    seen[lock] = true
    if last then standing = standing + 1 end
    if holder then
      if holder == owner then return end
      standing = standing + 1
    else
      local token = (last and math.max(tonumber(last), node.floor) or max) + 1
      if token > TOKEN_MAX then return end
      texts[i], max = digits(token), math.max(max, token)
    end
  end
  -- Somebody waits, or what stands there is none of ours.
  if redis.call('EXISTS', unpack(KEYS, from, from + count * KEYS_EACH - 1)) ~= standing then return end

  -- First, so that it is never below a token that was stored.
  if max > node.max then redis.call('HSET', KEYS[1], 'max', digits(max)) end
  node.max = max
  local voter = '",' .. node.place .. ']'
  for i = 1, count do
    local text = texts[i]
    if text then
      redis.call('SET', known[2 * i - 1], run[2 + 3 * i], 'PX', run[3 + 3 * i])
      redis.call('SET', known[2 * i], text, 'PX', run[4 + 3 * i])
      replies[before + i] = '["granted","' .. text .. voter
    end
  end
end
