-- Stands in line and takes nothing: on a majority of the nodes somebody else holds the lock, though it may be free here.
-- keys: lock, fence and line of each resource, then the own key of who waits.
-- arguments: owner, score, channel, turn (ms).
-- Reply: {'standing'} | {'not-admitted'} | {'wrong-members'}.
commands.stand = function(from, to, owner, score, channel, turn)
  local node, refusal = admitted()
  if not node then return refusal end
  stand_in_line(KEYS[to], score, owner, channel, turn, from, to - 1)
  return {'standing'}
end
