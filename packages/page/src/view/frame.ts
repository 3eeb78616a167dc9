import type { Message } from '../world/run.ts';
import type { Scale } from './scale.ts';

export const GUTTER_PX = 46;
export const BAR_PX = 9;
/** Height of a line of text. */
export const LINE_PX = 15;
/** Below this width, texts are shortened. */
export const NARROW_PX = 560;
/** Slope of a message that does not arrive. */
const LOST_PX = 4;

/** The lanes and the messages between them. */
export interface Frame {
  readonly width: number;
  readonly x: (place: string) => number;
  readonly scale: Scale;
  readonly messages: readonly Message[];
}

/** The two ends of a message. A message that does not arrive ends half way. */
export function endsOf({ from, to, sentMs, arrivedMs }: Message, { x, scale }: Frame) {
  const [x1, y1] = [x(from), scale.y(sentMs)];
  if (arrivedMs === null) return { x1, y1, x2: (x1 + x(to)) / 2, y2: y1 + LOST_PX };
  return { x1, y1, x2: x(to), y2: scale.y(arrivedMs) };
}
