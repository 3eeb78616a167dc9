-- Several RELEASEs of one resource each, as acquire-at-once.lua. What somebody else holds, or nobody, is left to release.lua.
at_once.release = function(run, from, replies)
  local KEYS_EACH, VALUES_EACH = 2, 1
  local count, before = run[4], #replies
  if run[2] ~= KEYS_EACH or run[3] ~= VALUES_EACH then return end

  local locks = {}
  for i = 1, count do locks[i] = KEYS[from + (i - 1) * KEYS_EACH] end
  local standing, own, held, seen = 0, {}, {}, {}
  for i, holder in ipairs(redis.call('MGET', unpack(locks))) do
    if holder then standing = standing + 1 end
    if holder == run[4 + i] and not seen[locks[i]] then
      own[#own + 1], held[#held + 1], seen[locks[i]] = i, locks[i], true
    end
  end
  if redis.call('EXISTS', unpack(KEYS, from, from + count * KEYS_EACH - 1)) ~= standing or #held == 0 then return end
  redis.call('DEL', unpack(held))
  for _, i in ipairs(own) do replies[before + i] = '["released"]' end
end
