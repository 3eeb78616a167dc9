/** Width of a chip, as a part of the axis. On a phone, the widest chip takes a third. */
const WIDTH = 1 / 3;

/** Returns a row for each chip, so that no two chips of a row overlap. The lowest row is 0. */
export function stack(times: readonly number[], lastMs: number): readonly number[] {
  const ends: number[] = [];
  const rows = times.map(() => 0);
  const order = times.map((_, at) => at).sort((a, b) => (times[a] ?? 0) - (times[b] ?? 0));
  for (const at of order) {
    const ms = times[at] ?? 0;
    const free = ends.findIndex((endMs) => endMs <= ms);
    const row = free === -1 ? ends.length : free;
    ends[row] = ms + WIDTH * lastMs;
    rows[at] = row;
  }
  return rows;
}
