-- Gives up what the owner holds here, and its places in the lines: each lock that is free then goes to the first in line.
-- A node that is not admitted does so too: giving up is no vote.
-- keys: the waiter's own, then lock and line of each resource.
-- arguments: owner.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'}.
commands.release = function(keys, args)
  redis.call('DEL', keys[1])
  local held = true
  for _, lock in ipairs(every(2, keys, 2)) do
    if redis.call('GET', lock) == args[1] then redis.call('DEL', lock) else held = false end
  end
  for _, line in ipairs(every(2, keys, 3)) do hand_over(line) end
  return {held and 'released' or 'not-held'}
end
