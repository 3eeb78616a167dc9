-- Runs the calls that a client made in one tick of its event loop, one after the other.
--
-- - KEYS: the node's two, then the keys of each call
-- - ARGV: members; then the calls as JSON. It is a list of runs, and each run is a list:
--   - the command, and the number of keys of each call
--   - all arguments but the first, as a list; the calls of a run have these in common
--   - the first argument of each call
-- - reply: a JSON list of the replies, on one line; then one line for each entry of `voters`
--   - {"error", message} for a call that failed
--   - an object for a run of similar replies: `like` is one reply, `times` is their number
--   - instead of `times`, `each` may list the second part of every reply
--
-- The reply is text, because nested Redis lists are much more work, both here and for the client.
local HEAD = 3
local replies, from = {}, 3
for _, run in ipairs(cjson.decode(ARGV[2])) do
  local name, keys, values = unpack(run, 1, HEAD)
  local count, own, ok, like = #run - HEAD, {}, nil, nil
  if count > 1 and keys == 1 and at_once[name] then
    local queues = {unpack(KEYS, from, from + count - 1)}
    ok, like = pcall(at_once[name], {unpack(run, HEAD + 1)}, values, queues, own)
    -- A run that failed half-way runs again below, call by call. A call whose lock was taken before
    -- the failure finds that lock, and succeeds.
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
