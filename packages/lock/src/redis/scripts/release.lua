-- Gives up what the owner holds here. A node that is not admitted does so too: giving up is no vote.
-- keys: the lock of each resource.
-- arguments: owner.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'}.
commands.release = function(keys, args)
  local held = true
  for i = 1, #keys do
    if redis.call('GET', keys[i]) == args[1] then redis.call('DEL', keys[i]) else held = false end
  end
  return {held and 'released' or 'not-held'}
end
