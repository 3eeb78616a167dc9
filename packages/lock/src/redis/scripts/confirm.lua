-- Raises this node to the token that an attempt chose, if the attempt still holds the locks here. Answers a higher one where it
-- has given that meanwhile: a CONFIRM that fell back to EVAL, or was sent again, may come after a later one.
-- KEYS: node, then lock and fence of each resource.
-- ARGV: owner, token, members, fence ttl (ms).
-- Reply: {'granted', token, gen, incarnation, roster} | {'not-held'} | {'not-admitted'} | {'wrong-members'}.
local owner, token, members, fence_ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local node, refusal = admitted_node(members)
if not node then return refusal end
for i = 2, #KEYS, 2 do
  if redis.call('GET', KEYS[i]) ~= owner then return {'not-held'} end
end
return grant(node, math.max(token, highest_given(node)), fence_ttl)
