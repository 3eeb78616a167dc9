-- ENQUEUE: takes a queue position, and no lock. A lock that is free here may still be held on a
-- majority of the nodes.
--
-- - KEYS: the wait queue of each resource, then the waiter's own key
-- - ARGV: owner, score, channel, grace period (ms)
-- - replies:
--   - {'turn'}: the waiter is first for all resources, and all are free
--   - {'held', remaining (ms), time (ms)}
--   - {'not-voting'} | a mismatch, see node.lua
commands.stand = function(from, to, owner, score, channel, turn)
  local waiter = KEYS[to]
  to = to - 1
  local node, refusal = admitted()
  if not node then return refusal end

  local lines = {unpack(KEYS, from, to)}
  local now, missing, is_free, left = own_time_ms(), false, {}, nil
  for i, entry in ipairs(entries_of(lines)) do
    local _, holder, till = parts_of(entry)
    missing, is_free[i] = missing or holder ~= owner, not holder
    if holder and holder ~= owner then left = math.max(left or 0, till - now) end
  end
  -- If the owner has all the locks, this is a late copy of an old request.
  if not missing then return {'turn'} end

  if not renew(waiter, turn) then
    stand_in_line(waiter, score, owner, channel, turn, from, to)
  elseif left then
    return {'held', left, digits(now)}
  end
  local others, theirs = {}, {}
  for i, line in ipairs(lines) do
    local first, stays = first_in(line)
    if not first then
      -- The queue was lost.
      stand_in_line(waiter, score, owner, channel, turn, from, to)
    elseif is_free[i] and first ~= waiter then
      left = math.max(left or 0, stays)
      others[#others + 1], theirs[#theirs + 1] = first, line
    end
  end
  if not left then return {'turn'} end
  call_all(others, theirs)
  return {'held', left, digits(now)}
end
