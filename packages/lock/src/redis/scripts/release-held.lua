-- RELEASE where it is alone and nobody waits, as acquire-free.lua is for ACQUIRE.
if #KEYS == 3 and redis.call('EXISTS', KEYS[3]) == 0 and redis.call('GET', KEYS[2]) == ARGV[3] then
  redis.call('DEL', KEYS[2])
  return 'released'
end
