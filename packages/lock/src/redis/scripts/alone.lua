-- Runs the only call of a script. It saves the work of separating several calls.
--
-- - KEYS: the node's two, then those of the call
-- - ARGV: members, the command, its arguments
-- - reply: as in calls.lua; an error is raised as the script's error
local ok, reply = carry_out(ARGV[2], 3, #KEYS, unpack(ARGV, 3))
if not ok then error(reply, 0) end
return cjson.encode({reply}) .. (voters[1] and '\n' .. table.concat(voters, '\n') or '')
