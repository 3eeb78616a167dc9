-- The calls of one tick of a client, one after the other.
-- KEYS: the node's two, then the keys of each call. ARGV: members, and the calls in runs of what is alike, each as a list of JSON: the
-- command, how many keys each call has, all arguments but the first as a list, and then the first of each call.
-- Reply: the reply of each call, {"error", message} where it failed; and the voters whose places those name. Two lines of JSON, much less
-- work than lists of lists are, here and for the client. Where those of a whole run are alike, an object stands for them: `like` is what
-- they are, `times` how often, or `each` has what would be the second part of each.
local HEAD = 3
local replies, from = {}, 3
for _, run in ipairs(cjson.decode(ARGV[2])) do
  local name, keys, values = unpack(run, 1, HEAD)
  local count, own, ok, like = #run - HEAD, {}, nil, nil
  if count > 1 and keys == 1 and at_once[name] then
    local lines = {unpack(KEYS, from, from + count - 1)}
    ok, like = pcall(at_once[name], {unpack(run, HEAD + 1)}, values, lines, own)
    -- What failed half-way is asked again below, and fails there, or finds what is its own.
    if not ok then own, like = {}, nil end
  end
  for i = 1, like and 0 or count do
    local to = from + i * keys - 1
    local reply = own[i]
    if not reply then
      ok, reply = carry_out(name, to - keys + 1, to, run[HEAD + i], unpack(values))
      reply = cjson.encode(ok and reply or {'error', type(reply) == 'table' and reply.err or tostring(reply)})
    end
    replies[#replies + 1] = reply
  end
  replies[#replies + 1] = like
  from = from + count * keys
end
return '[' .. table.concat(replies, ',') .. ']' .. (voters[1] and '\n' .. table.concat(voters, '\n') or '')
