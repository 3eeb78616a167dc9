-- Takes the locks of all resources or none, and makes a token above every token this node knows of for them.
-- A request that is sent again finds its own locks and takes them for free, but leaves them the time they have.
-- KEYS: node, then lock and fence of each resource.
-- ARGV: owner, ttl (ms), members, fence ttl (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'held', remaining (ms)} | {'not-admitted'} | {'wrong-members'}
--        | {'ttl-too-long', max_ttl} | {'token-exhausted'}.
local owner, ttl, members, fence_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local node, refusal = admitted_node(members)
if not node then return refusal end
if tonumber(ttl) > node.max_ttl then return {'ttl-too-long', node.max_ttl} end

local NOBODY, WITHOUT_TTL = -2, -1
local remaining = NOBODY
for i = 2, #KEYS, 2 do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= owner then
    local pttl = redis.call('PTTL', KEYS[i])
    if pttl == WITHOUT_TTL then pttl = node.max_ttl end
    remaining = math.max(remaining, pttl)
  end
end
if remaining ~= NOBODY then return {'held', remaining} end

local token = highest_given(node) + 1
if token > TOKEN_MAX then return {'token-exhausted'} end

for i = 2, #KEYS, 2 do redis.call('SET', KEYS[i], owner, 'PX', ttl, 'NX') end
note_ttl(node, ttl)
return grant(node, token, fence_ttl)
