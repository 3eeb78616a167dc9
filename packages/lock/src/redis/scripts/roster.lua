-- Parses a roster: for each node, the generation and name of its latest known incarnation. For the
-- text form, see `roster` in node.lua.
local function incarnations_in(roster)
  local list = {}
  for generation, incarnation in string.gmatch(roster, '(%d+):([^,]*)') do
    list[#list + 1] = {generation = tonumber(generation), incarnation = incarnation}
  end
  return list
end

-- Returns whether `one` is later than `other`: the order of all incarnations of a node, as isLater
-- in core/quorum.ts. The generation decides, then the name, byte by byte. Lua's own comparison of
-- strings depends on the server's locale, which may differ between nodes.
local function is_later(one, other)
  if one.generation ~= other.generation then return one.generation > other.generation end
  local name, other_name = one.incarnation, other.incarnation
  for at = 1, math.min(#name, #other_name) do
    local byte, other_byte = string.byte(name, at), string.byte(other_name, at)
    if byte ~= other_byte then return byte > other_byte end
  end
  return #name > #other_name
end

local function roster_text(list)
  local parts = {}
  for place, one in ipairs(list) do parts[place] = digits(one.generation) .. ':' .. one.incarnation end
  return table.concat(parts, ',')
end

-- Stores the promises of this node as its roster, which its votes carry from now on. Also stores
-- the client's node names: the node then refuses clients with other names.
local function note_roster(generation, incarnation, roster, name, names)
  write_though_full()
  redis.call('HSET', NODE, 'roster', roster, 'vote', generation .. ' ' .. incarnation .. ' ' .. roster,
    'members', MEMBERS, 'name', name, 'names', names)
end
