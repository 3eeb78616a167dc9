-- RELEASE where it is alone, in time by its client's clock, and nobody waits, as acquire-free.lua is for ACQUIRE. Where memory is full,
-- release.lua does it.
if #KEYS == 3 and #ARGV == 3 then
  local found = redis.call('HMGET', KEYS[1], KEYS[3], 'members')
  local entry = found[1]
  if entry and found[2] == ARGV[1] and string.sub(entry, 34) == ARGV[3] and string.sub(entry, 16, 16) == ' ' then
    local done = redis.pcall('HSET', KEYS[1], KEYS[3], string.sub(entry, 17, 32))
    if done == 0 then return 'released' end
  end
end
