/** A value in a message. Objects show their type only, because their `toString` may throw. */
export function shown(value: unknown): string {
  if (value === null) return 'null';
  return typeof value === 'object' || typeof value === 'function'
    ? typeof value
    : `${String(value).slice(0, 40)} type=${typeof value}`;
}
