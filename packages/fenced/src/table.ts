/** Columns as wide as their widest cell, two spaces apart. */
export function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [titles, ...rows];
  const widths = titles.map((_, at) => Math.max(...lines.map((line) => line[at]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
