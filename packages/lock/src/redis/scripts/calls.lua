-- The calls of one tick of a client, one after the other.
-- KEYS: node, both ledgers, then the keys of each call. ARGV: members, and the calls in runs of one command, each as a list of JSON: the command, how many
-- keys and how many arguments each call has, how many calls there are, and the arguments of all.
-- Reply: the reply of each call, {"error", message} where it failed, and the voters whose places those name: two lines of JSON, much less
-- work than lists of lists are, here and for the client.
local HEAD = 4
local replies, from = {}, 4
for _, run in ipairs(cjson.decode(ARGV[2])) do
  local name, keys, values, count = unpack(run, 1, HEAD)
  local before = #replies
  if count > 1 and at_once[name] then
    local ok, done = pcall(at_once[name], run, from, replies)
    -- What failed half-way is asked again below, and fails there, or finds what is its own.
    for i = 1, ok and done and 0 or count do replies[before + i] = nil end
  end
  for i = 1, count do
    if not replies[before + i] then
      local first, to = HEAD + 1 + (i - 1) * values, from + i * keys - 1
      local ok, reply = pcall(commands[name], to - keys + 1, to, unpack(run, first, first + values - 1))
      -- Older servers raise a string, later ones a table.
      replies[before + i] = cjson.encode(ok and reply or {'error', type(reply) == 'table' and reply.err or tostring(reply)})
    end
  end
  from = from + count * keys
end
return '[' .. table.concat(replies, ',') .. ']' .. (voters[1] and '\n' .. cjson.encode(voters) or '')
