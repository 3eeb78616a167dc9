-- The calls of one tick of a client, one after the other.
-- KEYS: node, then the keys of each call. ARGV: of each call its command, how many keys, how many arguments, the arguments.
-- Reply: the reply of each call; {'error', message} where it failed.
local replies, key, arg = {}, 2, 1
while arg <= #ARGV do
  local command, keys, args = ARGV[arg], {}, {}
  for i = 1, tonumber(ARGV[arg + 1]) do keys[i], key = KEYS[key], key + 1 end
  for i = 1, tonumber(ARGV[arg + 2]) do args[i] = ARGV[arg + 2 + i] end
  arg = arg + 3 + #args
  local ok, reply = pcall(commands[command], keys, args)
  -- Older servers raise a string, later ones a table.
  replies[#replies + 1] = ok and reply or {'error', type(reply) == 'table' and reply.err or tostring(reply)}
end
return replies
