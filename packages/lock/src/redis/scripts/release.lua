-- Gives up what the owner holds here, and its places in the lines: the first in line for what is free then is called.
-- A node that is not admitted does so too: giving up is no vote. What another storage version keeps is not touched.
-- keys: the line of each resource, then the own keys of those who may have waited.
-- arguments: owner; unless its client knows that its lease is not over, and that it has never waited: how many may have waited, and the
-- owner that its client tells that it may be its turn.
-- Reply: {'released'} where every lock was still the owner's, else {'not-held'} | {'wrong-version', version}.
local is_own_version
commands.release = function(from, to, owner, have_waited, told)
  if not is_own_version then
    local refusal = other_version(redis.call('HGET', NODE, 'members'))
    if refusal then return refusal end
    is_own_version = true
  end
  local first_waiter = to - (tonumber(have_waited) or 0) + 1
  local waiters = {unpack(KEYS, first_waiter, to)}
  to = first_waiter - 1
  if waiters[1] then leave_line(waiters, from, to) end
  local held, is_free, firsts, lines = true, {}, {}, {}
  for i = from, to do
    local last, holder = entry_of(KEYS[i], have_waited == nil)
    if holder == owner then
      write_though_full()
      write(KEYS[i], last)
    end
    held, is_free[i] = held and holder == owner, not holder or holder == owner
  end
  for i = from, to do
    local first = is_free[i] and first_in(KEYS[i])
    if first then firsts[#firsts + 1], lines[#lines + 1] = first, KEYS[i] end
  end
  call_all(firsts, lines, told)
  return {held and 'released' or 'not-held'}
end
