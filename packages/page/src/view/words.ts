import { BAR_PX, endsOf, type Frame, GUTTER_PX, LINE_PX, NARROW_PX } from './frame.ts';
import type { Row } from './rows.ts';

/** An upper bound for the mean width of a letter. */
const LETTER_PX = 7;
/** Messages with the same label share one label if less time than this lies between them. */
const SAME_MS = 40;
/** Places of a label on the line of its message, as shares of the line. The best is the first. */
const SHARES = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8];

/** A text of the picture that is shown from a time on. */
export interface Word {
  readonly atMs: number;
  readonly x: number;
  /** The base line. */
  readonly y: number;
  readonly text: string;
  /** The classes, which say whether `x` is the left end, the middle or the right end. */
  readonly style: string;
}

/** The rows beside their lanes. The scale has room for all rows, so no row covers another. */
export function textsOf(rows: readonly Row[], { width, x, scale }: Frame): readonly Word[] {
  return rows.map((row, at): Word => {
    const { atMs, place, tone } = row;
    const text = shortened(row.text, width);
    const textPx = text.length * LETTER_PX;
    const first = rows.findIndex((other) => other.atMs === atMs);
    const y = scale.y(atMs) + 4 + (at - first) * LINE_PX;
    const word = { atMs, y, text, style: `event ${tone}` };
    const node = place === 'lock nodes' ? /^[A-E](?=['’ ])/.exec(text)?.[0].toLowerCase() : place;
    if (node === undefined) return { ...word, x: GUTTER_PX };
    if (node.length === 1)
      return { ...word, x: Math.max(GUTTER_PX, Math.min(x(node) + BAR_PX, width - textPx)) };
    const [leftX, rightX] = [x(place) - BAR_PX, x(place) + BAR_PX];
    if (place !== 'storage' && rightX + textPx <= width) return { ...word, x: rightX };
    if (leftX - textPx < GUTTER_PX) return { ...word, x: Math.max(GUTTER_PX, width - textPx) };
    return { ...word, x: leftX, style: `${word.style} right` };
  });
}

/** Shortens a text for the picture. The table has the whole text. */
function shortened(text: string, width: number): string {
  const short = text.replace(/(\d{4})\d{6,}(\d{4})/g, '$1…$2');
  return width < NARROW_PX ? short.replace(/^no lock: .*/, 'no lock') : short;
}

/**
 * The labels of messages, on their lines. A label that would cover a text moves along the line, and
 * is left out if it finds no place.
 */
export function labelsOf(texts: readonly Word[], frame: Frame): readonly Word[] {
  const { width } = frame;
  const latest = new Map<string, number>();
  const labels: Word[] = [];
  const isFree = (word: Word): boolean => ![...texts, ...labels].some((one) => covers(one, word));
  for (const message of frame.messages) {
    const { from, to, sentMs, arrivedMs, label } = message;
    const { x1, y1, x2, y2 } = endsOf(message, frame);
    if (arrivedMs === null)
      labels.push({ atMs: sentMs, x: x2, y: y2 + 4, text: '✕', style: 'lost' });
    const key = `${from.length === 1 ? to : from} ${label}`;
    const isNew = sentMs - (latest.get(key) ?? Number.NEGATIVE_INFINITY) > SAME_MS;
    if (!isNew || from === 'storage' || label === 'read') continue;
    latest.set(key, sentMs);
    const places = SHARES.map((share): Word => {
      const [x, y] = [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + 3];
      return { atMs: sentMs, x, y, text: shortened(label, width), style: 'label' };
    });
    const place = places.find(isFree);
    if (place) labels.push(place);
  }
  return labels;
}

function covers(one: Word, other: Word): boolean {
  if (Math.abs(one.y - other.y) >= LINE_PX - 2) return false;
  const [[from, to], [otherFrom, otherTo]] = [edges(one), edges(other)];
  return from < otherTo && otherFrom < to;
}

function edges({ x, text, style }: Word): readonly [number, number] {
  const px = text.length * LETTER_PX;
  const left = style.startsWith('event') ? (style.endsWith('right') ? px : 0) : px / 2;
  return [x - left, x - left + px];
}
