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
