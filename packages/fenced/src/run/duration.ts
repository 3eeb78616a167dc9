import { UsageError } from '../command.js';

const UNITS: ReadonlyMap<string | undefined, number> = new Map([
  ...([
    ['ms', 1],
    ['s', 1_000],
    ['m', 60_000],
    ['h', 3_600_000],
  ] as const),
]);
/** The longest delay of a timer. */
const MAX_MS = 2 ** 31 - 1;

/**
 * Milliseconds of a text such as `500ms`, `30s`, `1.5m` or `1h`.
 *
 * @param option for the message
 * @throws {UsageError}
 */
export function durationMs(option: string, text: string): number {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  const ms = Math.round(Number(amount) * (UNITS.get(unit) ?? Number.NaN));
  if (ms <= MAX_MS) return ms;
  throw new UsageError(
    `${option} takes a time such as 500ms, 30s, 5m or 1h, up to 24 days: ${text}`,
  );
}
