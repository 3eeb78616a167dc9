-- ACQUIRE: takes the locks of all resources, or none. The token is above every token that this node
-- knows of for them. A repeated request finds its own locks. A free lock with waiters is granted to
-- the first waiter only. A refused client with an enqueue time is enqueued.
--
-- acquire-free.lua and acquire-at-once.lua do the same faster for free locks without waiters.
--
-- Followers are other waiters of the same process, to which a waiter may hand the lock over. The
-- node reserves one token for each of them, and returns the last token.
--
-- - KEYS: the wait queue of each resource; for a waiter, then its own key, which ends in the owner
-- - ARGV: owner, ttl (ms), fence ttl (ms); for a waiter, also:
--   - enqueue time (ms), channel, grace period (ms)
--   - the largest number of followers, and the beginning of their owner ids
--   - the time (ms) by which a follower may have come later than a waiter of another process
-- - replies:
--   - {'granted', token, voter}; for a waiter, also the number of followers that are next
--   - {'held', remaining (ms), time (ms)}
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
  -- The end of each lock. A repeated request does not shorten it.
  local ends = {}
  -- Remaining time (ms) until a refused client may ask again; nil if it is not refused.
  local left
  local first_waiters, their_queues = {}, {}
  for i = from, to do
    local last, holder, till = record_of(KEYS[i])
    highest = math.max(highest, highest_given(last))
    ends[i] = now + tonumber(ttl)
    if holder == owner then
      ends[i] = math.max(ends[i], till)
    elseif holder then
      left = math.max(left or 0, till - now)
    else
      local first, stays = head_of(KEYS[i])
      if first and first ~= waiter then
        -- The last lease may have expired, and no release has notified the first waiter.
        first_waiters[#first_waiters + 1], their_queues[#their_queues + 1] = first, KEYS[i]
        left = math.max(left or 0, stays)
      end
    end
  end
  if left then
    notify_all(first_waiters, their_queues)
    if enqueued_ms then join_queues(waiter, enqueued_ms, owner, channel, grace_ms, from, to) end
    return {'held', left, digits(now)}
  end

  -- The waiter's own token is `highest + 1`. The next ones, up to this, are for its followers.
  local token = highest + 1 + (tonumber(followers_max) or 0)
  if token > TOKEN_MAX then return {'token-exhausted'} end

  note_ttl(ttl)
  local reply = grant(token, fence_ttl, from, to, owner, ends)
  -- After the grant: if memory is full, Redis refuses that, and the waiter keeps its position.
  if enqueued_ms then leave_queues({waiter}, from, to) end
  if followers_max then
    -- The Redis client may add a prefix to each key. The waiter's own key has it, too.
    local begins = string.sub(waiter, 1, #waiter - #owner) .. process_id
    reply[4] = followers(KEYS[to], begins, tonumber(followers_max), tonumber(together_ms))
  end
  return reply
end
