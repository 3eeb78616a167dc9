import { styleText } from 'node:util';
import type { Cell } from './cell.js';
import { type Actor, type Event, type Lane, type Lines, lanes } from './history.js';
import { isFenced, type Protection, protections } from './job.js';
import type { Scenario } from './scenarios/scenario.js';
import type { Verdict } from './verdict.js';

const WIDTH = 80;
const TIME_WIDTH = 8;
const LANE_WIDTH = (WIDTH - TIME_WIDTH) / lanes.length;

type Style = Parameters<typeof styleText>[0];
const laneStyles: Record<Lane, Style> = {
  'client 1': 'cyan',
  'client 2': 'magenta',
  'lock nodes': 'yellow',
  storage: 'blue',
};

const explained: Record<Protection, string> = {
  none: 'no lock',
  lock: 'the lease is checked before the write',
  metadata: 'the token in the metadata, and only upon the ETag that was read',
  token: "the lease's token goes with the write",
  'token+cas': 'the token, and only if nobody wrote since the read',
  claim: 'the token is claimed before the read',
};

export function renderStory(scenario: Scenario): string {
  const title = styleText('bold', `Scenario ${scenario.number}: ${scenario.title}`);
  const source = styleText('dim', `(${scenario.source})`);
  return ['', '═'.repeat(WIDTH), title, ...wrap(scenario.story, WIDTH), source, ''].join('\n');
}

/** The history in lanes, one event a row, and the verdict below. */
export function renderCell(cell: Cell): string {
  const stopped = new Set<Lane>();
  const turnedAway = new Set<Actor>();
  const rows = cell.history.flatMap((event) => {
    if (event.operation === 'pause') stopped.add(laneOf(event.actor));
    if (event.operation === 'wake') stopped.delete(laneOf(event.actor));
    const isRefusal = event.operation === 'acquire' && event.phase === 'refused';
    // Who asks again and again is told about once.
    if (isRefusal && turnedAway.has(event.actor)) return [];
    if (isRefusal) turnedAway.add(event.actor);
    const text = tell(event, cell);
    return text === null ? [] : [row(event, text, stopped)];
  });
  return [title(cell), header(), ...rows, ...verdict(cell), ''].join('\n');
}

function title({ lock, protection, store }: Cell): string {
  const isOurs = lock === 'fenced';
  const name = `${protection} on ${store}${isOurs ? '' : `, ${lock}`}: `;
  return styleText('bold', name) + (isOurs ? explained[protection] : 'what people do instead');
}

function header(): string {
  const names = lanes.map((lane) => styleText(laneStyles[lane], lane.padEnd(LANE_WIDTH)));
  return `${'ms'.padStart(TIME_WIDTH - 2)}  ${names.join('').trimEnd()}`;
}

/** As long as its gateway is stopped, a client stands still, too. */
function laneOf(actor: Actor): Lane {
  return actor === 'gateway A' ? 'client 1' : actor;
}

/** A row has one event, so its text may run over the lanes to the right of its own. */
function row(event: Event, text: string, stopped: ReadonlySet<Lane>): string {
  const time = Math.round(event.atMs)
    .toString()
    .padStart(TIME_WIDTH - 2);
  const lane = laneOf(event.actor);
  const bars = lanes.map((lane) => (stopped.has(lane) ? '┊' : '│').padEnd(LANE_WIDTH)).join('');
  const start = lanes.indexOf(lane) * LANE_WIDTH;
  const before = `${time}  ${bars.slice(0, start)}`;
  const after = bars.slice(start + text.length + 1).trimEnd();
  return `${dim(before)}${styleText(laneStyles[lane], text)}${dim(after && ` ${after}`)}`;
}

function verdict(cell: Cell): string[] {
  const asPinned =
    cell.verdict === cell.pinned ? 'as expected' : `EXPECTED: ${cell.pinned.toUpperCase()}`;
  const sentence = `${cell.verdict.toUpperCase()}: ${cell.reason} (${asPinned})`;
  return wrap(sentence, WIDTH - TIME_WIDTH).map(
    (line) => ' '.repeat(TIME_WIDTH) + styleText(['bold', verdictStyle(cell.verdict)], line),
  );
}

/** What the event means, in a few words; null where it needs no row of its own. */
function tell(event: Event, { protection, lock }: Cell): string | null {
  const unused = lock === 'fenced' ? '; its token is not used' : '';
  const token = isFenced(protection) ? `, token ${event.token}` : unused;
  const name = event.actor === 'gateway A' ? 'gateway A ' : '';
  const lines = event.lines ? brief(event.lines) : '';
  const told: Partial<Record<`${Event['operation']} ${Event['phase']}`, string>> = {
    'probe refused': 'REFUSES the store: it ignores conditions',
    'acquire ok': `holds the lock${token}`,
    'acquire refused': `no lock: ${event.reason}`,
    'claim ok': `claims: below ${event.token} is void`,
    'claim refused': `claim REFUSED, ${event.highest} was seen`,
    'read ok': `reads ${lines}`,
    'check ok':
      event.validMs === undefined
        ? `makes it ${lines}`
        : `makes it ${lines}; lease good for ${Math.floor(event.validMs)} ms`,
    'check failed': 'gives up: the lease is over',
    'pause ok': `■ ${name}is stopped (SIGSTOP)`,
    'wake ok': `▶ ${name}wakes (SIGCONT)`,
    'write ok': 'write acknowledged',
    'write refused': event.highest ? `write REFUSED, ${event.highest} was seen` : 'write REFUSED',
    'write unknown': 'write: outcome unknown',
    'expire ok': "client 1's lease is over",
    'forget ok': `✗ ${event.reason}`,
    'reach ok': `✂ ${event.reason}`,
    'hold ok': `✉ ${event.reason}`,
    'deliver ok': `✉ ${event.reason}`,
    'lose ok': `✉ ${event.reason}`,
    'final ok': `holds ${lines}`,
  };
  return told[`${event.operation} ${event.phase}`] ?? null;
}

/** Lines are named after the client that wrote them: `[1, 2]`. */
function brief(lines: Lines): string {
  return `[${lines.map((line) => line.replace('client ', '')).join(', ')}]`;
}

const COLUMN_WIDTHS = {
  none: 6,
  lock: 12,
  metadata: 9,
  token: 8,
  'token+cas': 10,
  claim: 8,
} as const;
const STORY_WIDTH = WIDTH - Object.values(COLUMN_WIDTHS).reduce((sum, width) => sum + width, 0);

/** Story by protection, each with its verdict. A row is for all stores that were played, where they agree. */
export function renderTable(cells: readonly Cell[]): string {
  const titles = protections.map((protection) => protection.padEnd(COLUMN_WIDTHS[protection]));
  const stories = Map.groupBy(cells, ({ title, lock }) => `${title} ${lock}`);
  const right = cells.filter((cell) => cell.verdict === cell.pinned).length;
  return [
    '═'.repeat(WIDTH),
    styleText('bold', (''.padEnd(STORY_WIDTH) + titles.join('')).trimEnd()),
    ...[...stories.values()].flatMap(tableRows),
    '',
    `${right} of ${cells.length} verdicts are as expected.`,
    `Safe in every story played: ${alwaysSafe(cells).join(', ') || 'nothing'}.`,
  ].join('\n');
}

/** Of one story under one lock: a row, or one for each store. */
function tableRows(cells: readonly Cell[]): string[] {
  const byStore = [...Map.groupBy(cells, ({ store }) => store)];
  const rows = byStore.map(([store, own]) => ({ store, verdicts: tableRow(own) }));
  const agree = rows.every(({ verdicts }) => verdicts === rows[0]?.verdicts);
  return (agree ? rows.slice(0, 1) : rows).map(({ store, verdicts }) => {
    const [cell] = cells;
    const name =
      cell?.lock === 'fenced' ? `${cell.scenario} ${cell.title}` : `  … ${cell?.lock ?? ''}`;
    return `${`${name}${agree ? '' : `, ${store}`}`.padEnd(STORY_WIDTH)}${verdicts}`.trimEnd();
  });
}

function tableRow(cells: readonly Cell[]): string {
  const texts = protections.map((protection) => {
    const cell = cells.find((one) => one.protection === protection);
    if (!cell) return '–'.padEnd(COLUMN_WIDTHS[protection]);
    const text = cell.verdict === cell.pinned ? cell.verdict : `${cell.verdict} (!)`;
    return styleText(verdictStyle(cell.verdict), text.padEnd(COLUMN_WIDTHS[protection]));
  });
  return texts.join('');
}

/** Under our lock: what people do instead is there to fail. */
function alwaysSafe(cells: readonly Cell[]): readonly Protection[] {
  const ours = cells.filter(({ lock }) => lock === 'fenced');
  return protections.filter((protection) => {
    const verdicts = ours.filter((cell) => cell.protection === protection);
    return verdicts.length > 0 && verdicts.every(({ verdict }) => isSafe(verdict));
  });
}

function verdictStyle(verdict: Verdict): 'green' | 'red' | 'yellow' {
  if (isSafe(verdict)) return 'green';
  return verdict === 'unknown' ? 'yellow' : 'red';
}

/** A client that refused to write has lost nothing. */
function isSafe(verdict: Verdict): boolean {
  return verdict === 'safe' || verdict === 'refused';
}

function dim(text: string): string {
  return text && styleText('dim', text);
}

function wrap(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}
