-- The calls of one tick of a client, one after the other.
-- KEYS: node, then the keys of each call. ARGV: members, and of each call its command, how many keys, and its arguments, as JSON.
-- Reply: the reply of each call, {"error", message} where it failed, and the voters whose places those name: two lines of JSON, much less work
-- than lists of lists are, here and for the client.
local replies, from = {}, 2
for i, call in ipairs(cjson.decode(ARGV[2])) do
  local to = from + call[2] - 1
  local ok, reply = pcall(commands[call[1]], from, to, unpack(call, 3))
  -- Older servers raise a string, later ones a table.
  replies[i] = ok and reply or {'error', type(reply) == 'table' and reply.err or tostring(reply)}
  from = to + 1
end
return cjson.encode(replies) .. (voters[1] and '\n' .. cjson.encode(voters) or '')
