import type { Run } from '../world/run.ts';

const TOP_PX = 26;
/** Least distance between two times. */
const GAP_PX = 7;
const PER_SECOND_PX = 40;
const WAIT_MAX_PX = 60;

/** The first whole millisecond at which an event at `ms` has happened. */
export function wholeMs(ms: number): number {
  return Math.ceil(ms);
}

/** Position of a time in the picture. Long waits are shortened, and short ones are widened. */
export interface Scale {
  y(ms: number): number;
  /** The time at a position. */
  ms(y: number): number;
  readonly height: number;
}

/** @param heights height in pixels of the texts at a time, by time */
export function scaleOf(run: Run, heights: ReadonlyMap<number, number>): Scale {
  const times = new Set([
    ...[0, run.endMs, ...heights.keys()],
    ...run.messages.flatMap(({ sentMs, arrivedMs }) => [sentMs, arrivedMs ?? sentMs]),
    ...run.leases.flatMap(({ fromMs, untilMs }) => [fromMs, untilMs ?? fromMs]),
  ]);
  const stops: { readonly ms: number; readonly y: number }[] = [];
  let [y, textY] = [TOP_PX, Number.NEGATIVE_INFINITY];
  for (const ms of [...times].sort((a, b) => a - b)) {
    const before = stops.at(-1);
    if (before) {
      const waitPx = ((ms - before.ms) / 1_000) * PER_SECOND_PX;
      y += Math.min(WAIT_MAX_PX, Math.max(GAP_PX, waitPx));
    }
    const height = heights.get(ms);
    if (height !== undefined) {
      y = Math.max(y, textY);
      textY = y + height;
    }
    stops.push({ ms, y });
  }
  return {
    y: (ms) => between(stops, 'ms', 'y', ms),
    ms: (at) => between(stops, 'y', 'ms', at),
    height: Math.max(y + TOP_PX, textY),
  };
}

type Stop = { readonly ms: number; readonly y: number };

/** Interpolates one coordinate from the other. */
function between(stops: readonly Stop[], from: keyof Stop, to: keyof Stop, value: number): number {
  const at = stops.findIndex((stop) => stop[from] >= value);
  const high = stops.at(at);
  const low = stops[at - 1];
  if (!high) return 0;
  if (at === -1 || !low) return high[to];
  return low[to] + ((value - low[from]) / (high[from] - low[from] || 1)) * (high[to] - low[to]);
}
