import assert from 'node:assert/strict';
import type { Cell } from './cell.js';
import { type Lane, type Lines, lanes } from './history.js';
import type { Protection, StoreKind } from './job.js';
import { type Moment, momentsOf } from './moments.js';
import { pausedBeforeWrite } from './stories/paused-before-write.js';

const WIDTH_PX = 880;
const HEAD_PX = 128;
const ROW_PX = 46;
const BAR_PX = 12;
const TOKEN_PX = 68;
const LANE_PX: Readonly<Record<Lane, number>> = {
  'client 1': 92,
  'lock nodes': 298,
  'client 2': 486,
  storage: 684,
};
/** Time between two rows. It is the time of the run, within these limits. */
const STEP_S = { min: 1.3, max: 2.2 };
const FLIGHT_S = 0.8;

const STYLE = `text{font:14px system-ui,sans-serif;fill:#1f2328}.note{font-size:12px;fill:#59636e}
.bold,.sum{font-weight:600}.sum{font-size:15px}.refused{fill:#cf222e;font-weight:600}.applied{fill:#1a7f37;font-weight:600}
.card{fill:#fff;stroke:#d1d9e0}.lane{stroke:#d1d9e0}.one{fill:#0969da;stroke:#0969da}.two{fill:#8250df;stroke:#8250df}
.stopped{fill:#fff;stroke:#0969da;stroke-dasharray:3 3}.token text{fill:#fff;stroke:none;font-size:12px;font-weight:600}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.note{fill:#9198a1}.refused{fill:#ff7b72}.applied{fill:#56d364}
.card{fill:#0d1117;stroke:#3d444d}.lane{stroke:#3d444d}.stopped{fill:#0d1117;stroke:#4493f8}.one{fill:#1f6feb;stroke:#1f6feb}}
.in{animation:in .4s backwards}.fly{animation:fly ${FLIGHT_S}s backwards}.grow{animation:grow linear backwards;transform-box:fill-box}
@keyframes in{from{opacity:0}}@keyframes fly{from{transform:translateX(var(--from));opacity:0}}
@keyframes grow{from{transform:scaleY(0)}}
@media (prefers-reduced-motion:reduce){.in,.fly,.grow{animation:none}}`;

/** A moment's place in the picture, and its time after the picture's beginning. */
interface Row extends Moment {
  readonly y: number;
  readonly beginS: number;
}

type Texts = Partial<Record<Lane, readonly [text: string, note?: string]>>;

/**
 * Draws the run of story 1 with tokens as an animated SVG, which ends with the whole run in view.
 * Below it are the verdicts of this run, and of the run with the lock alone.
 *
 * @param cells the runs; these two runs on `store` must be among them
 * @param programs names of the servers by service, as in `5 × redis-server 7.0.15`
 */
export function picture(
  cells: readonly Cell[],
  store: StoreKind,
  programs: Readonly<Record<string, string>>,
): string {
  const find = (protection: Protection): Cell | undefined =>
    cells.find((cell) => {
      return cell.story === 1 && cell.store === store && cell.protection === protection;
    });
  const [fenced, unfenced] = [find('token'), find('lock')];
  assert(fenced && unfenced);
  const rows = rowsOf(momentsOf(fenced));
  const document = fenced.history.findLast(({ operation }) => operation === 'final')?.lines ?? [];
  const endY = HEAD_PX + rows.length * ROW_PX;
  const endS = (rows.at(-1)?.beginS ?? 0) + STEP_S.max;
  const height = endY + 56;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH_PX} ${height}" width="${WIDTH_PX}" height="${height}" role="img">
<title>Story 1: ${pausedBeforeWrite.title}</title>
<style>${STYLE}</style>
<rect class="card" x=".5" y=".5" width="${WIDTH_PX - 1}" height="${height - 1}" rx="8"/>
${headOf({ 'lock nodes': programs.redis, storage: programs[store] })}
${lanes.map((lane) => `<path class="lane" d="M${LANE_PX[lane]} 96V${endY - 14}"/>`).join('')}
${rows.map(messageOf).join('\n')}
${barsOf(rows).join('\n')}
${rows.map((row) => wordsOf(row, rows[0]?.atMs ?? 0, document)).join('\n')}
${verdictOf(fenced, 'with tokens', endY + 14, endS)}
${verdictOf(unfenced, 'with the lock alone', endY + 36, endS + STEP_S.min)}
</svg>
`;
}

function rowsOf(moments: readonly Moment[]): readonly Row[] {
  let beginS = 0.5;
  return moments.map((moment, at) => {
    const gapS = (moment.atMs - (moments[at - 1]?.atMs ?? moment.atMs)) / 1_000;
    if (at > 0) beginS += Math.min(Math.max(gapS, STEP_S.min), STEP_S.max);
    return { ...moment, y: HEAD_PX + at * ROW_PX, beginS };
  });
}

function headOf(programs: Partial<Record<Lane, string | undefined>>): string {
  const lesson = pausedBeforeWrite.lesson.split(/(?<=\.) /);
  const names = lanes.map((lane) => {
    const x = LANE_PX[lane] - BAR_PX / 2;
    const note = programs[lane] ?? 'a process';
    return text(x, 74, lane, 'bold') + text(x, 90, note, 'note');
  });
  return [...lesson.map((line, at) => text(20, 28 + at * 20, line, 'sum')), ...names].join('\n');
}

function textsOf({ kind, client, token, validMs, comparison }: Row, document: Lines): Texts {
  switch (kind) {
    case 'acquire':
      return { [client]: ['gets the lock'], 'lock nodes': [`lease: ${inMs(validMs)}`] };
    case 'pause':
      return { [client]: ['■ is stopped (SIGSTOP)', 'as by garbage collection'] };
    case 'over':
      return { 'lock nodes': ['lease is over', `${client} cannot notice`] };
    case 'wake':
      return { [client]: ['▶ wakes up (SIGCONT)', 'and believes in its lease'] };
    case 'write': {
      const isRefused = comparison.endsWith('refused');
      const note = isRefused
        ? `keeps the line of ${document.join(', ')}`
        : `highest token: ${token}`;
      return { [client]: [isRefused ? 'writes, too late' : 'writes'], storage: [comparison, note] };
    }
  }
}

function wordsOf(row: Row, startMs: number, document: Lines): string {
  const words = Object.entries(textsOf(row, document)).map(([lane, [line, note]]) => {
    const x = LANE_PX[lane as Lane] + BAR_PX / 2 + 8;
    const isReply = lane === 'storage';
    const style = isReply ? (/\w+$/.exec(line)?.[0] ?? '') : '';
    const both = text(x, row.y, line, style) + (note ? text(x, row.y + 16, note, 'note') : '');
    return appearing(both, row.beginS + (isReply ? FLIGHT_S : 0));
  });
  const time = text(20, row.y, inMs(row.atMs - startMs), 'note');
  return [appearing(time, row.beginS), ...words].join('');
}

/** The message of an acquire or a write, with its token. It flies from one lane to another. */
function messageOf({ kind, client, token, y, beginS }: Row): string {
  if (kind !== 'acquire' && kind !== 'write') return '';
  const [from, to]: [Lane, Lane] =
    kind === 'acquire' ? ['lock nodes', client] : [client, 'storage'];
  const [fromX, toX] = [LANE_PX[from], LANE_PX[to]];
  const isRight = toX > fromX;
  const tip = toX + (isRight ? -1 : 1) * (BAR_PX / 2 + 2);
  const left = isRight ? tip - TOKEN_PX - 8 : tip + 8;
  const head = `M${tip} ${y + 14}l${isRight ? -8 : 8} -5v10z`;
  const label = `<text x="${left + TOKEN_PX / 2}" y="${y + 18}" text-anchor="middle">token ${token}</text>`;
  const pill = `<rect x="${left}" y="${y + 5}" width="${TOKEN_PX}" height="18" rx="9"/>${label}`;
  const line = appearing(`<path d="M${fromX} ${y + 14}H${tip}"/><path d="${head}"/>`, beginS);
  const flying = `<g class="fly token" style="--from:${fromX - toX}px;animation-delay:${seconds(beginS)}">${pill}</g>`;
  return `<g class="${colourOf(client)}">${line}${flying}</g>`;
}

/** Leases on the lock nodes, each client's work, the pause, and the storage's highest token. */
function barsOf(rows: readonly Row[]): readonly string[] {
  const find = (kind: Moment['kind'], client: Moment['client']): Row | undefined =>
    rows.find((row) => row.kind === kind && row.client === client);
  const [lock1, pause, over] = [
    find('acquire', 'client 1'),
    find('pause', 'client 1'),
    find('over', 'client 1'),
  ];
  const [wake, late] = [find('wake', 'client 1'), find('write', 'client 1')];
  const [lock2, write] = [find('acquire', 'client 2'), find('write', 'client 2')];
  return [
    bar('lock nodes', 'one', lock1, over),
    bar('lock nodes', 'two', lock2, write),
    bar('client 1', 'one', lock1, late),
    bar('client 1', 'stopped', pause, wake),
    bar('client 2', 'two', lock2, write),
    bar('storage', 'two', write, late),
  ];
}

function bar(lane: Lane, style: string, from: Row | undefined, to: Row | undefined): string {
  if (!from || !to) return '';
  const x = LANE_PX[lane] - BAR_PX / 2;
  const [top, bottom] = [
    from.y - 10,
    to.y + (lane === 'lock nodes' && to.kind === 'over' ? -4 : 24),
  ];
  const times = `animation-delay:${seconds(from.beginS)};animation-duration:${seconds(to.beginS - from.beginS)}`;
  return `<rect class="grow ${style}" style="${times}" x="${x}" y="${top}" width="${BAR_PX}" height="${bottom - top}" rx="3"/>`;
}

function verdictOf({ verdict, reason }: Cell, how: string, y: number, beginS: number): string {
  const word = `<tspan class="${verdict === 'safe' ? 'applied' : 'refused'}">${verdict.toUpperCase()}</tspan>`;
  return appearing(`<text x="20" y="${y}">${word} ${escaped(`${how}: ${reason}`)}</text>`, beginS);
}

function appearing(content: string, beginS: number): string {
  return `<g class="in" style="animation-delay:${seconds(beginS)}">${content}</g>`;
}

function text(x: number, y: number, content: string, style: string): string {
  return `<text${style && ` class="${style}"`} x="${x}" y="${y}">${escaped(content)}</text>`;
}

function colourOf(client: Moment['client']): string {
  return client === 'client 1' ? 'one' : 'two';
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

function inMs(value: number): string {
  return `${Math.floor(value).toLocaleString('en')} ms`;
}

function seconds(value: number): string {
  return `${Math.round(value * 100) / 100}s`;
}
