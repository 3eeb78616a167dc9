/** A value in a message. Objects are only named: they may have no text at all, or throw when they are asked for it. */
export function shown(value: unknown): string {
  if (value === null) return 'null';
  return typeof value === 'object' || typeof value === 'function'
    ? typeof value
    : `${String(value).slice(0, 40)} type=${typeof value}`;
}
