-- Lets this node vote, if it still is the incarnation that was inspected. One that votes already, in a lower generation than others
-- have promised to it, is raised to that: its votes would not count beside theirs.
-- arguments: history, incarnation, gen, roster, floor, longest (ms), max_ttl (ms), quarantine (ms), the node's name, all names.
-- Reply: {'admitted'} | {'already-admitted'} | {'changed'} | {'too-early', left (ms)} where the node
--        has been seen for less than the quarantine: it may have forgotten a lease that somebody
--        still holds. Or a mismatch, see node.lua.
commands.admit = function(_, _, told, incarnation, gen, roster, floor, longest, max_ttl, quarantine, name, names)
  local fields = redis.call('HMGET', NODE,
    'history', 'incarnation', 'seen_history', 'members', 'max', 'roster', 'longest', 'seen_at', 'gen')
  local refusal = mismatch(fields[4])
  if refusal then return refusal end
  if own_history() ~= told or fields[3] ~= told or fields[2] ~= incarnation then return {'changed'} end
  if fields[1] ~= told then
    -- Never more than all of it: where the clock has gone back since INSPECT, the next one lets the wait begin again.
    local left = math.min(tonumber(quarantine), tonumber(fields[8]) + tonumber(quarantine) - own_time_ms())
    if left > 0 then return {'too-early', left} end
  elseif tonumber(fields[9]) >= tonumber(gen) then
    return {'already-admitted'}
  end

  local highest = token_text(math.max(tonumber(floor), tonumber(fields[5] or '0')))
  local known = lives(roster)
  for place, life in ipairs(lives(fields[6] or '')) do
    if life.gen > known[place].gen then known[place] = life end
  end
  note_roster(gen, incarnation, as_roster(known), name, names)
  redis.call('HSET', NODE, 'history', told, 'gen', gen, 'floor', highest, 'max', highest,
    'longest', digits(math.max(tonumber(longest), tonumber(fields[7] or '0'))), 'max_ttl', max_ttl)
  voter = nil
  return {'admitted'}
end
