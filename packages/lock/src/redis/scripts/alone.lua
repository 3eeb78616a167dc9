-- The only call of a script: none of the work that telling several apart is.
-- KEYS: the node's two, then those of the call. ARGV: members, the command, and its arguments. The reply is that of calls.lua; an error is the script's.
return cjson.encode({commands[ARGV[2]](3, #KEYS, unpack(ARGV, 3))}) .. (voters[1] and '\n' .. table.concat(voters, '\n') or '')
