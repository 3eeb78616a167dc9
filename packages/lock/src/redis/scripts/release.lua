-- Gives up what the owner holds here, and its places in the lines: each lock that is free then goes to the first in line.
-- A node that is not admitted does so too: giving up is no vote.
-- keys: the waiter's own, then lock and line of each resource.
-- arguments: owner.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'}.
commands.release = function(keys, args)
  local waiter, owner, lines = keys[1], args[1], every(2, keys, 3)
  redis.call('DEL', waiter)
  for _, line in ipairs(lines) do redis.call('ZREM', line, waiter) end
  local held = true
  for _, lock in ipairs(every(2, keys, 2)) do
    local holder = redis.call('GET', lock)
    if holder == owner or holder == turn_of(owner) then redis.call('DEL', lock) end
    held = held and holder == owner
  end
  for _, line in ipairs(lines) do hand_over(line) end
  return {held and 'released' or 'not-held'}
end
