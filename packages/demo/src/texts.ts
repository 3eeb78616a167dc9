import { styleText } from 'node:util';
import type { Cell } from './cell.js';
import type { Verdict } from './checker.js';
import { explained, type Protection, protections } from './job.js';
import type { Story } from './stories/story.js';
import { WIDTH } from './timeline.js';

const INDENT = '  ';

/** Explanation of the document and of the ways to protect it. */
export function introduction(programs: readonly string[]): string {
  const rows = protections.map((protection) => {
    return `${INDENT}${protection.padEnd(11)}${explained[protection]}`;
  });
  return [
    `Real servers: ${programs.join(', ')}.`,
    'The document is a list. Each client adds its own number to it: [1, 2].',
    'The demo protects it in these ways:',
    ...rows,
  ].join('\n');
}

export function storyTitle({ number, title, summary, source }: Story): string {
  const heading = styleText('bold', `Story ${number}: ${title}`);
  const origin = styleText('dim', `(${source})`);
  return ['', '═'.repeat(WIDTH), heading, ...wrap(summary, WIDTH), origin, ''].join('\n');
}

/** The last lines of a story. */
export function lesson({ lesson }: Story, next: Story | undefined): string {
  const lines = wrap(`Lesson: ${lesson}`, WIDTH).map((line) => styleText('bold', line));
  const command = `npm run demo -- --only ${next?.number}`;
  return [...lines, ...(next ? [`Next: ${next.title} (${command})`] : [])].join('\n');
}

/** The verdict below a timeline, with its reason. */
export function verdict(cell: Cell, where: string): string {
  const expectation =
    cell.verdict === cell.pinned ? 'as expected' : `EXPECTED: ${cell.pinned.toUpperCase()}`;
  const sentence = `${where}${cell.verdict.toUpperCase()}: ${cell.reason} (${expectation})`;
  return wrap(sentence, WIDTH - 8)
    .map((line) => `${' '.repeat(8)}${styleText(['bold', styleOf(cell.verdict)], line)}`)
    .join('\n');
}

/** One word for the cells of a variant: `token safe`, or one for each store if they differ. */
export function briefVerdict(cells: readonly Cell[]): string {
  const [first] = cells;
  const agree = cells.every(({ verdict }) => verdict === first?.verdict);
  const words = (agree ? cells.slice(0, 1) : cells).map((cell) => {
    const store = agree ? '' : ` on ${cell.store}`;
    return styleText(styleOf(cell.verdict), `${marked(cell)}${store}`);
  });
  return `${first?.protection} ${words.join(', ')}`;
}

const COLUMN_WIDTHS = {
  none: 6,
  lock: 12,
  metadata: 9,
  token: 8,
  'token+cas': 10,
  claim: 8,
} satisfies Record<Protection, number>;
const STORY_WIDTH = WIDTH - Object.values(COLUMN_WIDTHS).reduce((total, width) => total + width, 0);

/** All stories, one a row, and a row for each store if they differ. */
export function table(cells: readonly Cell[]): string {
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

function tableRows(cells: readonly Cell[]): string[] {
  const byStore = [...Map.groupBy(cells, ({ store }) => store)];
  const rows = byStore.map(([store, own]) => ({ store, verdicts: tableRow(own) }));
  const agree = rows.every(({ verdicts }) => verdicts === rows[0]?.verdicts);
  return (agree ? rows.slice(0, 1) : rows).map(({ store, verdicts }) => {
    const [cell] = cells;
    const name =
      cell?.lock === 'fenced' ? `${cell.story} ${cell.title}` : `${INDENT}… ${cell?.lock ?? ''}`;
    return `${`${name}${agree ? '' : `, ${store}`}`.padEnd(STORY_WIDTH)}${verdicts}`.trimEnd();
  });
}

function tableRow(cells: readonly Cell[]): string {
  const texts = protections.map((protection) => {
    const cell = cells.find((one) => one.protection === protection);
    const width = COLUMN_WIDTHS[protection];
    return cell ? styleText(styleOf(cell.verdict), marked(cell).padEnd(width)) : '–'.padEnd(width);
  });
  return texts.join('');
}

function marked({ verdict, pinned }: Cell): string {
  return verdict === pinned ? verdict : `${verdict} (!)`;
}

/** Protections without a bad verdict under `@fenced/lock`. Do-it-yourself locks are not counted. */
function alwaysSafe(cells: readonly Cell[]): readonly Protection[] {
  const ours = cells.filter(({ lock }) => lock === 'fenced');
  return protections.filter((protection) => {
    const verdicts = ours.filter((cell) => cell.protection === protection);
    return verdicts.length > 0 && verdicts.every(({ verdict }) => isSafe(verdict));
  });
}

function styleOf(verdict: Verdict): 'green' | 'red' | 'yellow' {
  if (isSafe(verdict)) return 'green';
  return verdict === 'unknown' ? 'yellow' : 'red';
}

/** A client that refuses to write loses nothing. */
function isSafe(verdict: Verdict): boolean {
  return verdict === 'safe' || verdict === 'refused';
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
