import { extraHeadings, type Row } from './measure.ts';

type Extra = keyof typeof extraHeadings;

const RIGHT = '-:';
const LEFT = ':-';

/** Returns one table for each bench, for a terminal. */
export function terminalTables(rows: readonly Row[]): string {
  return byBench(rows)
    .map(([bench, its]) => {
      const table = cells(its);
      const widths = table.map((column) => Math.max(...column.map(({ length }) => length)));
      const lines = Array.from({ length: its.length + 1 }, (_, line) =>
        table
          .map((column, at) => pad(column[line] ?? '', widths[at] ?? 0, alignment(at)))
          .join('  ')
          .trimEnd(),
      );
      return `${bench}\n${lines.join('\n')}\n`;
    })
    .join('\n');
}

/** Returns a table for a page of the documentation. */
export function markdownTable(rows: readonly Row[]): string {
  const table = cells(rows);
  const line = (texts: readonly string[]): string => `| ${texts.join(' | ')} |`;
  const lines = rows.map((_, at) => line(table.map((column) => column[at + 1] ?? '')));
  const headings = table.map(([heading = '']) => heading);
  return [line(headings), line(headings.map((_, at) => alignment(at))), ...lines].join('\n');
}

/** Groups the rows by bench. */
export function byBench(rows: readonly Row[]): [string, Row[]][] {
  return [...Map.groupBy(rows, ({ bench }) => bench)];
}

/** Formats with three digits: more are noise. */
export function shown(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  return Number(value.toPrecision(3)).toLocaleString('en-US', { maximumSignificantDigits: 3 });
}

/** Returns the columns, each with its heading first. */
function cells(rows: readonly Row[]): string[][] {
  const column = (heading: string, cell: (row: Row) => string): string[] => [
    heading,
    ...rows.map(cell),
  ];
  // Unfinished operations took at least this long.
  const atLeast = ({ unfinished = 0, cycles = 0 }: Row, ms: number): string =>
    unfinished > 0 && unfinished === cycles ? `≥ ${shown(ms)}` : shown(ms);
  const extras = Object.entries(extraHeadings) as [Extra, string][];
  return [
    column('', ({ subject }) => subject),
    column('p50, ms', (row) => atLeast(row, row.p50Ms)),
    column('p99, ms', (row) => atLeast(row, row.p99Ms)),
    column('a second', (row) => shown(row.perSecond)),
    ...extras
      .filter(([name]) => rows.some((row) => row[name] !== undefined))
      .map(([name, heading]) => column(heading, (row) => shown(row[name]))),
    column('ratio', (row) => `${shown(row.ratio)} ×`),
    column('of all rounds', ({ ratioRange: [low, high] }) => `${shown(low)} … ${shown(high)}`),
    column('ratio of', ({ ratioOf }) => ratioOf),
    column('to', ({ against }) => against),
  ];
}

function alignment(column: number): string {
  return column === 0 ? LEFT : RIGHT;
}

function pad(text: string, width: number, side: string): string {
  return side === LEFT ? text.padEnd(width) : text.padStart(width);
}
