-- A roster as a list of {gen, incarnation}.
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

-- What this node has promised, and its votes will say from now on; it belongs to the clients that name the nodes alike.
local function note_roster(gen, incarnation, roster, name, names)
  write_though_full()
  redis.call('HSET', NODE, 'roster', roster, 'vote', gen .. ' ' .. incarnation .. ' ' .. roster,
    'members', MEMBERS, 'name', name, 'names', names)
end
