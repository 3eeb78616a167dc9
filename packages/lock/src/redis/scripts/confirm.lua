-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here.
-- KEYS: node, then lock and fence of each resource.
-- ARGV: owner, token, members, fence ttl (ms).
-- Reply: {'granted', token, gen, roster} | {'not-held'} | {'not-admitted'} | {'wrong-members'}.
local owner, token, members, fence_ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local node, refusal = admitted_node(members)
if not node then return refusal end
for i = 2, #KEYS, 2 do
  if redis.call('GET', KEYS[i]) ~= owner then return {'not-held'} end
end
return {'granted', store_token(node, token, 3, fence_ttl), node.gen, node.roster}
