import { isOf } from './lock-results.ts';
import { lockSubjects } from './lock-subjects.ts';
import type { Row } from './measure.ts';
import { shown } from './report.ts';

type Figure = 'p50Ms' | 'p99Ms' | 'perSecond' | 'longestWaitMs' | 'bytesPerLease';

/** Part of the picture: the bars of one question. */
interface Panel {
  readonly bench: string;
  readonly title: string;
  readonly figure: Figure;
  readonly unit: string;
  /** Common end of the subjects' names. It is not shown. */
  readonly ending?: string;
}

const PANELS: readonly Panel[] = [
  { bench: 'lock-sequential', title: 'One at a time: median', figure: 'p50Ms', unit: 'ms' },
  {
    bench: 'lock-64-at-once',
    title: '64 at once: locks a second',
    figure: 'perSecond',
    unit: '/s',
  },
  {
    bench: 'lock-contended',
    title: '20 for one lock: locks a second',
    figure: 'perSecond',
    unit: '/s',
  },
  {
    bench: 'lock-contended',
    title: '20 for one lock: longest wait',
    figure: 'longestWaitMs',
    unit: 'ms',
  },
  {
    bench: 'lock-faults',
    title: 'One of five nodes hung: 99th percentile',
    figure: 'p99Ms',
    unit: 'ms',
    ending: ', one node hung',
  },
  {
    bench: 'lock-memory',
    title: '10,000 held: memory of each',
    figure: 'bytesPerLease',
    unit: 'B',
  },
];

const COLUMNS = 2;
const PANEL_WIDTH = 490;
const NAME_WIDTH = 216;
const BAR_WIDTH_MAX = 180;
const LINE_HEIGHT = 20;
const BAR_HEIGHT = 13;
const TITLE_HEIGHT = 40;
const GAP = 16;

const STYLE = `text { font: 12px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 13px }
.better { fill: #59636e; font-size: 11px } .ours { fill: #0969da } .peer { fill: #8c959f } .raw, .floor { fill: #d1d9e0 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .better { fill: #9198a1 } .ours { fill: #4493f8 } .peer { fill: #6e7681 } .raw, .floor { fill: #3d444d } }`;

/** Draws the benches of the lock as bars, for light and dark pages. Null if none was run. */
export function lockPicture(rows: readonly Row[]): string | null {
  const panels = PANELS.map((panel) => ({ panel, bars: barsOf(panel, rows) })).filter(
    ({ bars }) => bars.length > 0,
  );
  if (panels.length === 0) return null;
  const height =
    TITLE_HEIGHT + GAP + LINE_HEIGHT * Math.max(...panels.map(({ bars }) => bars.length));
  const drawn = panels.map(({ panel, bars }, at) => {
    const x = (at % COLUMNS) * PANEL_WIDTH;
    const y = Math.floor(at / COLUMNS) * height;
    return `<g transform="translate(${x} ${y})">${drawPanel(panel, bars)}</g>`;
  });
  const size = [COLUMNS * PANEL_WIDTH, Math.ceil(panels.length / COLUMNS) * height];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.join(' ')}" width="${size[0]}" height="${size[1]}" role="img">
<title>Speed of @fenced/lock beside other locks over five Redis nodes</title>
<style>${STYLE}</style>
${drawn.join('\n')}
</svg>
`;
}

interface Bar {
  readonly name: string;
  readonly kind: string;
  readonly value: number;
  readonly isAtLeast: boolean;
}

/** Returns a bar for each lock, with its best setting. */
function barsOf({ bench, figure, ending = '' }: Panel, rows: readonly Row[]): Bar[] {
  return lockSubjects.flatMap(({ name, kind }) => {
    const own = rows.filter(
      (row) => row.bench === bench && isOf(name, row.subject) && row.subject.endsWith(ending),
    );
    const values = own.map((row) => row[figure]).filter((value) => value !== undefined);
    if (values.length === 0) return [];
    const value = isMoreBetter(figure) ? Math.max(...values) : Math.min(...values);
    const isAtLeast = own.some(({ cycles, unfinished }) => unfinished && unfinished === cycles);
    return [{ name, kind, value, isAtLeast: Boolean(isAtLeast) }];
  });
}

function drawPanel({ title, figure, unit }: Panel, bars: readonly Bar[]): string {
  const longest = Math.max(...bars.map(({ value }) => value));
  const better = isMoreBetter(figure) ? 'longer is better' : 'shorter is better';
  const lines = bars.map(({ name, kind, value, isAtLeast }, at) => {
    const y = TITLE_HEIGHT + at * LINE_HEIGHT;
    const width = Math.max(1, Math.round((value / longest) * BAR_WIDTH_MAX));
    const label = `${isAtLeast ? '≥ ' : ''}${shown(value)} ${unit}`;
    return `<text x="${NAME_WIDTH - 8}" y="${y + 11}" text-anchor="end">${escaped(name)}</text><rect class="${kind}" x="${NAME_WIDTH}" y="${y}" width="${width}" height="${BAR_HEIGHT}" rx="2"/><text x="${NAME_WIDTH + width + 6}" y="${y + 11}">${label}</text>`;
  });
  return `<text class="title" x="8" y="16">${escaped(title)}</text><text class="better" x="8" y="31">${better}</text>\n${lines.join('\n')}`;
}

function isMoreBetter(figure: Figure): boolean {
  return figure === 'perSecond';
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
