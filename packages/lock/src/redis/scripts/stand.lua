-- Stands in line, and takes nothing: where the lock is free here, somebody may still hold it on a majority of the nodes.
-- keys: the line of each resource, then the own key of who waits.
-- arguments: owner, score, channel, turn (ms).
-- Reply: {'turn'} | {'held', remaining (ms), time (ms)} | {'not-admitted'}.
commands.stand = function(from, to, owner, score, channel, turn)
  local waiter = KEYS[to]
  to = to - 1
  local node, refusal = admitted()
  if not node then return refusal end

  local now, missing, free, left = own_time_ms(), false, {}, nil
  for i = from, to do
    local _, holder, till = entry_of(KEYS[i])
    missing = missing or holder ~= owner
    if not holder then
      free[#free + 1] = KEYS[i]
    elseif holder ~= owner then
      left = math.max(left or 0, till - now)
    end
  end
  -- Else it is a late copy of an old request.
  if missing then stand_in_line(waiter, score, owner, channel, turn, from, to) end
  for _, line in ipairs(free) do
    local first = first_in(line)
    if first and first ~= waiter then left = math.max(left or 0, redis.call('PTTL', first)) end
  end
  if not left then return {'turn'} end
  for i = from, to do call_first(KEYS[i]) end
  return {'held', left, digits(now)}
end
