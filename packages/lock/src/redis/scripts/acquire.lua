-- ACQUIRE: takes the locks of all resources for one owner, or takes none. The owner is the random
-- id of one acquisition. So a repeated request finds the locks that it took before, and succeeds
-- again.
--
-- The token is above every token that this node can have given for these resources. If clients wait
-- for a free lock, only the first waiter gets it. A refused waiter joins the wait queues.
--
-- acquire-free.lua and acquire-at-once.lua do the same faster for free locks without waiters.
--
-- Followers are waiters of the same process as the caller. The process may hand the lock over to
-- them later, without asking the nodes. So the node reserves a token for each follower. They are
-- the tokens just above the caller's own, and the reply has the last of them.
--
-- - KEYS: the wait queue of each resource; for a waiter, then its own key, which ends in the owner
-- - ARGV:
--   - owner, ttl (ms)
--   - fence ttl (ms): the time for which the token of a free lock is kept; see rotate in vote.lua
--   - for a waiter, also:
--     - enqueue time (ms), and the channel for notifications
--     - grace period (ms), after which a silent waiter loses its position
--     - the largest number of followers, and the process id with which their owner ids begin
--     - the time (ms) by which a follower may have come after the first waiter of another process
-- - replies:
--   - {'granted', token, voter}; for a waiter, also the number of followers that are next. `voter`
--     is the place of the node's vote text; see `voters` in node.lua
--   - {'held', remaining (ms), time (ms)}: the time until the last of the locks, or of their first
--     waiters' positions, ends; then the node's clock
--   - {'not-voting'} | {'ttl-too-long', max_ttl} | {'token-exhausted'} | a mismatch, see node.lua
commands.acquire = function(from, to, owner, ttl, fence_ttl, enqueued_ms, channel, grace_ms, followers_max, process_id,
  together_ms)
  local waiter
  if enqueued_ms then waiter, to = KEYS[to], to - 1 end

  local node, refusal = voting_node()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local now = own_time_ms()
  -- The highest token that this node can have given for any of the resources.
  local highest = 0
  -- The end (ms) that each lock will have. A repeated request never makes a lock end earlier.
  local ends = {}
  -- The tokens and origins of the locks that the owner has already.
  local tokens, origins = {}, {}
  -- Remaining time (ms) until a refused client may ask again; nil if it is not refused.
  local left
  local first_waiters, their_queues = {}, {}
  for i = from, to do
    local last, holder, till, origin = record_of(KEYS[i])
    highest = math.max(highest, highest_given(last))
    ends[i] = now + tonumber(ttl)
    if holder == owner then
      ends[i], tokens[i], origins[i] = math.max(ends[i], till), last, origin
    elseif holder then
      left = math.max(left or 0, lease_left(KEYS[i], last, holder, till, origin))
    else
      local first, stays = head_of(KEYS[i])
      if first and first ~= waiter then
        -- The first waiter may not know that the lock is free: a lease that expires notifies
        -- nobody.
        first_waiters[#first_waiters + 1], their_queues[#their_queues + 1] = first, KEYS[i]
        left = math.max(left or 0, position_left(first, stays))
      end
    end
  end
  if left then
    notify_all(first_waiters, their_queues)
    if enqueued_ms then join_queues(waiter, enqueued_ms, owner, channel, grace_ms, from, to) end
    return {'held', left, digits(now)}
  end

  -- The caller's own token is `highest + 1`. The tokens above it, up to this one, are for
  -- followers.
  local reserved = tonumber(followers_max) or 0
  local token = highest + 1 + reserved
  if token > TOKEN_MAX then return {'token-exhausted'} end

  note_ttl(ttl)
  for i = from, to do origins[i] = origins[i] and kept_origin(origins[i], tokens[i], token) or origin_of(reserved) end
  local reply = grant(token, fence_ttl, from, to, owner, ends, origins)
  -- After the grant: if Redis refuses the grant for lack of memory, the waiter keeps its position.
  if enqueued_ms then leave_queues({waiter}, from, to) end
  if followers_max then
    -- The caller's key without its owner id begins the keys of all waiters. It has the prefix that
    -- a Redis client may put before each key.
    local key_start = string.sub(waiter, 1, #waiter - #owner) .. process_id
    reply[4] = followers(KEYS[to], key_start, tonumber(followers_max), tonumber(together_ms))
  end
  return reply
end
