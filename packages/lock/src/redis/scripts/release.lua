-- RELEASE: gives up the owner's locks and queue positions on this node. If a lock is then free, it
-- notifies the first waiter.
-- A node that may not vote does this, too, because a release is no vote. Data of another storage
-- version stays untouched, and so do the leases of a sealed node: they are carried to the next set.
--
-- - KEYS: the wait queue of each resource; then the own keys of the owners that may be enqueued
-- - ARGV:
--   - owner
--   - the number of owners that may be enqueued. This argument is missing if there are none and, by
--     the client's clock, the lease is not over
-- - replies:
--   - {'released'}: every lock was still the owner's
--   - {'not-held'} | {'wrong-version', version} | {'config-mismatch', …} of a sealed node
commands.release = function(from, to, owner, have_waited)
  if not is_own_version then
    local members = redis.call('HGET', NODE, 'members')
    local refusal = other_version(members) or members == MEMBERS .. SEALED and mismatch(members)
    if refusal then return refusal end
    is_own_version = true
  end
  local first_waiter = to - (tonumber(have_waited) or 0) + 1
  local waiters = {unpack(KEYS, first_waiter, to)}
  to = first_waiter - 1
  if waiters[1] then leave_queues(waiters, from, to) end
  local held, is_free, heads, queues = true, {}, {}, {}
  for i = from, to do
    local last, holder = record_of(KEYS[i], have_waited == nil)
    if holder == owner then
      write_though_full()
      write(KEYS[i], last)
    end
    held, is_free[i] = held and holder == owner, not holder or holder == owner
  end
  for i = from, to do
    local first = is_free[i] and head_of(KEYS[i])
    if first then heads[#heads + 1], queues[#queues + 1] = first, KEYS[i] end
  end
  notify_all(heads, queues)
  return {held and 'released' or 'not-held'}
end
