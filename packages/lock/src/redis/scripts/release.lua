-- Gives up what the owner holds here. A node that is not admitted does so too: giving up is no vote.
-- KEYS: node, then the lock of each resource.
-- ARGV: owner.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'}.
local held = true
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) else held = false end
end
return {held and 'released' or 'not-held'}
