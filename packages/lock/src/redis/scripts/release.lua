-- Gives up what the owner holds here, and its places in the lines: each lock that is free then goes to the first in line.
-- A node that is not admitted does so too: giving up is no vote.
-- keys: lock and line of each resource, then the own key of who may have waited.
-- arguments: owner, whether it may have waited.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'}.
commands.release = function(from, to, owner, has_waited)
  if has_waited then
    local waiter = KEYS[to]
    to = to - 1
    redis.call('DEL', waiter)
    for i = from + 1, to, 2 do redis.call('ZREM', KEYS[i], waiter) end
  end
  local held = true
  for i = from, to, 2 do
    local holder = redis.call('GET', KEYS[i])
    if holder == owner or holder == turn_of(owner) then redis.call('DEL', KEYS[i]) end
    held = held and holder == owner
  end
  for i = from + 1, to, 2 do hand_over(KEYS[i]) end
  return {held and 'released' or 'not-held'}
end
