-- The only call of a script: none of the work that telling several apart is.
-- KEYS: the node's two, then those of the call. ARGV: members, the command, and its arguments. The reply is that of calls.lua; an error is the script's.
local ok, reply = carry_out(ARGV[2], 3, #KEYS, unpack(ARGV, 3))
if not ok then error(reply, 0) end
return cjson.encode({reply}) .. (voters[1] and '\n' .. table.concat(voters, '\n') or '')
