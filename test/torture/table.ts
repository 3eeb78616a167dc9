export type Cell = string | number;

/** Numbers are right-aligned, and have thousands separators. */
export function table(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const line = (cells: readonly Cell[]): string =>
    `| ${cells.map((cell) => (typeof cell === 'number' ? cell.toLocaleString('en-US') : cell)).join(' | ')} |`;
  const isNumber = (at: number): boolean => rows.some((row) => typeof row[at] === 'number');
  const rule = headings.map((_, at) => (isNumber(at) ? '-:' : '-'));
  return [line(headings), line(rule), ...rows.map(line)].join('\n');
}

/** Returns `ok`, or `ok × 2, violated × 1`. */
export function tally(words: readonly string[]): string {
  const groups = [...Map.groupBy(words, (word) => word)];
  return groups.length === 1
    ? (groups[0]?.[0] ?? '')
    : groups.map(([word, its]) => `${word} × ${its.length}`).join(', ');
}

export function sumOf<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + of(item), 0);
}
