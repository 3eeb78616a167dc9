-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- KEYS: node, then lock and fence of each resource.
-- ARGV: owner, ttl (ms), members, fence ttl (ms).
-- Reply: {'granted', token, gen, roster} | {'held', remaining (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
local owner, ttl, members, fence_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local node, refusal = admitted_node(members, owner)
if not node then return refusal end
if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

local ABSENT, WITHOUT_TTL = -2, -1
local remaining = ABSENT
for i = 2, #KEYS, 2 do
  local pttl = redis.call('PTTL', KEYS[i])
  if pttl == WITHOUT_TTL then pttl = node.max_ttl end
  remaining = math.max(remaining, pttl)
end
if remaining ~= ABSENT then return {'held', remaining} end

-- Where the fence key is gone, only `max` is known to be above every token of that resource.
local base = 0
for i = 3, #KEYS, 2 do
  local fence = redis.call('GET', KEYS[i])
  base = math.max(base, fence and math.max(tonumber(fence), node.floor) or node.max)
end
local token = base + 1
if token > TOKEN_MAX then return {'token-exhausted'} end

for i = 2, #KEYS, 2 do redis.call('SET', KEYS[i], owner, 'PX', ttl) end
return {'granted', store_token(node, token, fence_ttl), node.gen, node.roster}
