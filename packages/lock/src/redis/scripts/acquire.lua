-- ACQUIRE: takes the locks of all resources, or none. The token is above every token that this node
-- knows of for them. A repeated request finds its own locks. A free lock with waiters is granted to
-- the first waiter only. A refused client with a score is enqueued.
--
-- A waiter may hand the lock over to up to `most` followers of its process. The node then reserves
-- one token for each of them, and returns the last token.
--
-- - KEYS: the wait queue of each resource; for a waiter, then its own key, which ends in the owner
-- - ARGV: owner, ttl (ms), fence ttl (ms); for a waiter, also:
--   - score, channel, grace period (ms)
--   - the number of followers, and the beginning of their owner ids
--   - the time (ms) by which another process's waiter may have come before a follower
-- - replies:
--   - {'granted', token, voter}; for a waiter, also the number of followers that are next, and 1 if
--     other processes wait, else 0
--   - {'held', remaining (ms), time (ms)}
--   - {'not-voting'} | {'ttl-too-long', max_ttl} | {'token-exhausted'} | a mismatch, see node.lua
commands.acquire = function(from, to, owner, ttl, fence_ttl, score, channel, turn, most, family, together)
  local waiter
  if score then waiter, to = KEYS[to], to - 1 end

  local node, refusal = admitted()
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local now, highest, ends, left, others, theirs = own_time_ms(), 0, {}, nil, {}, {}
  for i = from, to do
    local last, holder, till = entry_of(KEYS[i])
    highest, ends[i] = math.max(highest, highest_given(last)), now + tonumber(ttl)
    if holder == owner then
      ends[i] = math.max(ends[i], till)
    elseif holder then
      left = math.max(left or 0, till - now)
    else
      local first, stays = first_in(KEYS[i])
      if first and first ~= waiter then
        -- The lease before has expired, so nobody has notified the first waiter yet.
        others[#others + 1], theirs[#theirs + 1] = first, KEYS[i]
        left = math.max(left or 0, stays)
      end
    end
  end
  if left then
    call_all(others, theirs)
    if score then stand_in_line(waiter, score, owner, channel, turn, from, to) end
    return {'held', left, digits(now)}
  end

  local token = highest + 1 + (tonumber(most) or 0)
  if token > TOKEN_MAX then return {'token-exhausted'} end

  note_ttl(ttl)
  local reply = grant(token, fence_ttl, from, to, owner, ends)
  -- Only now: if memory is full, Redis refuses the first write. The waiter keeps its position then.
  if score then leave_line({waiter}, from, to) end
  if most then
    -- The Redis client may add a prefix to each key. So the beginning comes from the own key.
    local begins = string.sub(waiter, 1, #waiter - #owner) .. family
    reply[4], reply[5] = followers(KEYS[to], begins, tonumber(most), tonumber(together))
  end
  return reply
end
