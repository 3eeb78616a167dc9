import type { Message, Run } from '../world/run.ts';
import { type Frame, GUTTER_PX, LINE_PX } from './frame.ts';
import { type Row, rowsOf, withoutRepeats } from './rows.ts';
import { scaleOf } from './scale.ts';
import { labelsOf, textsOf, type Word } from './words.ts';

/** A click selects a line within this distance, in pixels. */
const NEAR_PX = 6;

export interface Layout extends Frame {
  readonly rows: readonly Row[];
  /** The rows, beside their lanes. */
  readonly texts: readonly Word[];
  readonly labels: readonly Word[];
}

/** The lanes, from left to right: lock nodes, clients, storage. */
export function placesOf(run: Run): readonly string[] {
  return [...run.nodes, 'client 1', 'client 2', 'storage'];
}

export function layoutOf(run: Run, width: number): Layout {
  const rows = rowsOf(run);
  const messages = withoutRepeats(run).filter(({ tone }) => tone !== 'faint');
  const heights = new Map<number, number>();
  for (const { atMs } of rows) heights.set(atMs, (heights.get(atMs) ?? 4) + LINE_PX);
  const scale = scaleOf({ ...run, messages }, heights);
  const places = placesOf(run);
  const room = width - GUTTER_PX - 24;
  // Lanes of nodes need less room than lanes of clients, which have more texts beside them.
  const nodes = room * (run.nodes.length > 3 ? 0.42 : 0.34);
  const x = (place: string): number => {
    const at = run.nodes.indexOf(place);
    if (at !== -1) return GUTTER_PX + (nodes * (at + 0.5)) / run.nodes.length;
    const others = places.slice(run.nodes.length);
    const step = (room - nodes) / others.length;
    return GUTTER_PX + nodes + step * (Math.max(0, others.indexOf(place)) + 0.62);
  };
  const frame = { width, x, scale, messages };
  const texts = textsOf(rows, frame);
  return { ...frame, rows, texts, labels: labelsOf(texts, frame) };
}

/** The lane that is nearest to a position. */
export function laneAt(run: Run, { x }: Layout, at: number): string {
  const places = placesOf(run);
  const distance = (place: string): number => Math.abs(x(place) - at);
  return places.reduce((best, place) => (distance(place) < distance(best) ? place : best));
}

/** The message whose line is within a few pixels of a position, or null. */
export function messageAt({ x, scale, messages }: Layout, at: { x: number; y: number }) {
  const distance = ({ from, to, sentMs, arrivedMs }: Message): number => {
    const [x1, y1, x2, y2] = [x(from), scale.y(sentMs), x(to), scale.y(arrivedMs ?? sentMs)];
    const length = (x2 - x1) ** 2 + (y2 - y1) ** 2 || 1;
    const share = ((at.x - x1) * (x2 - x1) + (at.y - y1) * (y2 - y1)) / length;
    const nearest = Math.min(1, Math.max(0, share));
    return Math.hypot(at.x - x1 - nearest * (x2 - x1), at.y - y1 - nearest * (y2 - y1));
  };
  const near = messages
    .map((message) => ({ message, px: distance(message) }))
    .sort((a, b) => a.px - b.px);
  // A click at the end of a line is for the lane.
  const isAtLane = (place: string): boolean => Math.abs(x(place) - at.x) < NEAR_PX;
  const [best] = near;
  if (!best || best.px > NEAR_PX) return null;
  return isAtLane(best.message.from) || isAtLane(best.message.to) ? null : best.message;
}
