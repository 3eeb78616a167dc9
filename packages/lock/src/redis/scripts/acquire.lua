-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks and takes them for free, but leaves them the time they have.
-- keys: lock and fence of each resource.
-- arguments: owner, ttl (ms), members, fence ttl (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'held', remaining (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
commands.acquire = function(keys, args)
  local owner, ttl, members, fence_ttl = args[1], args[2], args[3], args[4]

  local node, refusal = admitted_node(members)
  if not node then return refusal end
  if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

  local NOBODY, WITHOUT_TTL = -2, -1
  local remaining = NOBODY
  for i = 1, #keys, 2 do
    local holder = redis.call('GET', keys[i])
    if holder and holder ~= owner then
      local pttl = redis.call('PTTL', keys[i])
      if pttl == WITHOUT_TTL then pttl = node.max_ttl end
      remaining = math.max(remaining, pttl)
    end
  end
  if remaining ~= NOBODY then return {'held', remaining} end

  local token = highest_given(node, keys) + 1
  if token > TOKEN_MAX then return {'token-exhausted'} end

  for i = 1, #keys, 2 do redis.call('SET', keys[i], owner, 'PX', ttl, 'NX') end
  note_ttl(node, ttl)
  return grant(node, keys, token, fence_ttl)
end
