-- ENQUEUE: takes or renews a queue position. It takes no lock, even if all are free here, because
-- they may still be held on a majority of the nodes.
--
-- - KEYS: the wait queue of each resource, then the waiter's own key
-- - ARGV: owner, enqueue time (ms), channel, grace period (ms)
-- - replies:
--   - {'head'}: the waiter is first for all resources, and all are free
--   - {'held', remaining (ms), time (ms)}
--   - {'not-voting'} | a mismatch, see node.lua
commands.enqueue = function(from, to, owner, enqueued_ms, channel, grace_ms)
  local waiter = KEYS[to]
  to = to - 1
  local node, refusal = voting_node()
  if not node then return refusal end

  local queues = {unpack(KEYS, from, to)}
  local now, missing, is_free, left = own_time_ms(), false, {}, nil
  for i, record in ipairs(records_of(queues)) do
    local token, holder, till, origin = parts_of(record)
    missing, is_free[i] = missing or holder ~= owner, not holder
    if holder and holder ~= owner then left = math.max(left or 0, lease_left(queues[i], token, holder, till, origin)) end
  end
  -- If the owner has all the locks, this is a late copy of an old request.
  if not missing then return {'head'} end

  if not renew(waiter, grace_ms) then
    join_queues(waiter, enqueued_ms, owner, channel, grace_ms, from, to)
  elseif left then
    return {'held', left, digits(now)}
  end
  local others, theirs = {}, {}
  for i, queue in ipairs(queues) do
    local first, stays = head_of(queue)
    if not first then
      -- The queue's key was lost, but the waiter's own key was not.
      join_queues(waiter, enqueued_ms, owner, channel, grace_ms, from, to)
    elseif is_free[i] and first ~= waiter then
      left = math.max(left or 0, position_left(first, stays))
      others[#others + 1], theirs[#theirs + 1] = first, queue
    end
  end
  if not left then return {'head'} end
  notify_all(others, theirs)
  return {'held', left, digits(now)}
end
