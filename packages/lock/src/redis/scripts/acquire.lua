-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks, and who is first in line those that are its own. Who is refused and has
-- a score stands in line.
-- keys: the line of each resource, then the own key of who would wait.
-- arguments: owner, ttl (ms), fence ttl (ms); of who would wait also its score, channel and turn (ms), to how many it would hand the lock
-- on, what their owner ids begin with, and by how much (ms) others may have come before them. The token is the last of as many more.
-- The own key ends with the owner.
-- Reply: {'granted', token, voter}, for who would wait also how many those are, and whether others wait | {'held', remaining (ms), time (ms)} | {'not-voting'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
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
        -- The lease before has expired, so that nobody has called the first yet.
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
  -- Not before: where memory is full, Redis refuses what is written first, and the place is kept.
  if score then leave_line({waiter}, from, to) end
  if most then
    -- The client of this node may put a prefix before each key.
    local begins = string.sub(waiter, 1, #waiter - #owner) .. family
    reply[4], reply[5] = followers(KEYS[to], begins, tonumber(most), tonumber(together))
  end
  return reply
end
