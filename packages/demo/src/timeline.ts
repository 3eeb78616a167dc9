import { styleText } from 'node:util';
import { Comparisons } from './comparisons.js';
import type { Display } from './display.js';
import { type Actor, type Event, type Lane, type Lines, lanes } from './history.js';
import { explained, isFenced, type Protection, type StoreKind } from './job.js';
import type { Variant } from './stories/story.js';

export const WIDTH = 80;
const TIME_WIDTH = 8;
const LANE_WIDTH = (WIDTH - TIME_WIDTH) / lanes.length;
/** Time for which a row waits for an earlier event of another process. */
const REORDER_MS = 50;

type Style = Parameters<typeof styleText>[0];
const laneStyles: Record<Lane, Style> = {
  'client 1': 'cyan',
  'client 2': 'magenta',
  'lock nodes': 'yellow',
  storage: 'blue',
};

/** Prints the events of one variant while they happen, one event a row, in lanes. */
export class Timeline {
  readonly #display: Display;
  readonly #protection: Protection;
  readonly #isOurs: boolean;
  readonly #comparisons: Comparisons;
  #waiting: Event[] = [];
  #startMs: number | null = null;
  readonly #stopped = new Set<Lane>();
  readonly #turnedAway = new Set<Actor>();

  constructor(variant: Variant, store: StoreKind, display: Display) {
    const { lock, protection } = variant;
    this.#display = display;
    this.#protection = protection;
    this.#isOurs = lock === 'fenced';
    this.#comparisons = new Comparisons(variant);
    const name = `${protection} on ${store}${this.#isOurs ? '' : `, ${lock}`}: `;
    const meaning = this.#isOurs ? explained[protection] : 'the do-it-yourself approach';
    display.line(styleText('bold', name) + meaning);
    display.line(header());
  }

  add(event: Event): void {
    this.#waiting.push(event);
    setTimeout(() => this.#print(event.atMs), REORDER_MS);
  }

  /** Prints the rows that still wait. */
  async finish(): Promise<void> {
    this.#print(Number.POSITIVE_INFINITY);
    await this.#display.printed();
  }

  #print(untilMs: number): void {
    const isDue = ({ atMs }: Event): boolean => atMs <= untilMs;
    const due = this.#waiting.filter(isDue).sort((a, b) => a.atMs - b.atMs);
    this.#waiting = this.#waiting.filter((event) => !isDue(event));
    for (const event of due) {
      const row = this.#row(event);
      if (row !== null) this.#display.row(row);
    }
  }

  /** Returns null if the event has no row. */
  #row(event: Event): string | null {
    const lane = laneOf(event.actor);
    if (event.operation === 'pause') this.#stopped.add(lane);
    if (event.operation === 'wake') this.#stopped.delete(lane);
    const comparison = this.#comparisons.of(event);
    if (event.operation === 'acquire' && event.phase === 'refused') {
      // Further refusals are not shown.
      if (this.#turnedAway.has(event.actor)) return null;
      this.#turnedAway.add(event.actor);
    }
    const text = this.#text(event);
    if (text === null) return null;
    this.#startMs ??= event.atMs;
    return layOut(event.atMs - this.#startMs, lane, text, comparison, this.#stopped);
  }

  #text(event: Event): string | null {
    const unused = this.#isOurs ? '; its token is not used' : '';
    const token = isFenced(this.#protection) ? `, token ${event.token}` : unused;
    const name = event.actor === 'gateway A' ? 'gateway A ' : '';
    const lines = event.lines ? brief(event.lines) : '';
    const texts: Partial<Record<`${Event['operation']} ${Event['phase']}`, string>> = {
      'probe refused': 'REFUSES the store: it ignores conditions',
      'acquire ok': `holds the lock${token}`,
      'acquire refused': `no lock: ${event.reason}`,
      'claim ok': 'claim accepted',
      'claim refused': 'claim REFUSED',
      'read ok': `reads ${lines}`,
      'check ok':
        event.validMs === undefined
          ? `makes it ${lines}`
          : `makes it ${lines}; lease valid for ${Math.floor(event.validMs)} ms`,
      'check failed': 'gives up: the lease is over',
      'pause ok': `■ ${name}is stopped (SIGSTOP)`,
      'wake ok': `▶ ${name}wakes up (SIGCONT)`,
      'write ok': 'write acknowledged',
      'write refused': 'write REFUSED',
      'write unknown': 'write: outcome unknown',
      'expire ok': "client 1's lease is over",
      'forget ok': `✗ ${event.reason}`,
      'reach ok': `✂ ${event.reason}`,
      'hold ok': `✉ ${event.reason}`,
      'deliver ok': `✉ ${event.reason}`,
      'lose ok': `✉ ${event.reason}`,
      'final ok': `holds ${lines}`,
    };
    return texts[`${event.operation} ${event.phase}`] ?? null;
  }
}

function header(): string {
  const names = lanes.map((lane) => styleText(laneStyles[lane], lane.padEnd(LANE_WIDTH)));
  return `${'ms'.padStart(TIME_WIDTH - 2)}  ${names.join('').trimEnd()}`;
}

/** A client waits while its gateway is stopped, so both share a lane. */
function laneOf(actor: Actor): Lane {
  return actor === 'gateway A' ? 'client 1' : actor;
}

/** A long text covers the lanes to its right. The storage's comparison ends at the right margin. */
function layOut(
  ms: number,
  lane: Lane,
  text: string,
  comparison: string,
  stopped: ReadonlySet<Lane>,
): string {
  const bars = lanes.map((lane) => (stopped.has(lane) ? '┊' : '│').padEnd(LANE_WIDTH)).join('');
  const start = lanes.indexOf(lane) * LANE_WIDTH;
  const storage = Math.min(lanes.indexOf('storage') * LANE_WIDTH, bars.length - comparison.length);
  const before = `${Math.round(ms)}`.padStart(TIME_WIDTH - 2).concat('  ', bars.slice(0, start));
  const from = start + text.length + 1;
  const after = ` ${bars.slice(from, comparison === '' ? undefined : Math.max(from, storage))}`;
  return [
    styleText('dim', before),
    styleText(laneStyles[lane], text),
    dim(comparison === '' ? after.trimEnd() : after),
    comparison && styleText(laneStyles.storage, comparison),
  ].join('');
}

/** Lines have the names of their clients: `[1, 2]`. */
function brief(lines: Lines): string {
  return `[${lines.map((line) => line.replace('client ', '')).join(', ')}]`;
}

function dim(text: string): string {
  return text && styleText('dim', text);
}
