-- Parses a roster into a list of {gen, incarnation}.
local function lives(roster)
  local list = {}
  for gen, incarnation in string.gmatch(roster, '(%d+):([^,]*)') do
    list[#list + 1] = {gen = tonumber(gen), incarnation = incarnation}
  end
  return list
end

local function as_roster(list)
  local parts = {}
  for place, life in ipairs(list) do parts[place] = digits(life.gen) .. ':' .. life.incarnation end
  return table.concat(parts, ',')
end

-- Stores the promises of this node, which its votes carry from now on. The node then belongs to the
-- clients that give the nodes the same names.
local function note_roster(gen, incarnation, roster, name, names)
  write_though_full()
  redis.call('HSET', NODE, 'roster', roster, 'vote', gen .. ' ' .. incarnation .. ' ' .. roster,
    'members', MEMBERS, 'name', name, 'names', names)
end
