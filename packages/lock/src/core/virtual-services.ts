import { LockArgumentError } from './errors.js';

/** More virtual services than groups of nodes will ever be needed. */
const COUNT_MAX = 4_096;
const NUMBERS = /^\d+(-\d+)?(,\d+(-\d+)?)*$/;

/** Checks the number of virtual services. */
export function checkVirtualServices(count: number): number {
  if (Number.isSafeInteger(count) && count >= 2 && count <= COUNT_MAX) return count;
  throw new LockArgumentError(
    `virtualServices must be a whole number from 2 to ${COUNT_MAX} virtualServices=${String(count)} type=${typeof count}; for 1, use Redlock`,
  );
}

/**
 * Returns the group of each virtual service, by its number.
 *
 * @param map the numbers that each group has, as `0-31,40`
 * @throws {LockArgumentError} a virtual service has no group or two, or a number does not exist
 */
export function resolveMap(
  count: number,
  map: Readonly<Record<string, string>>,
): readonly string[] {
  const groupOf = new Map<number, string>();
  for (const [group, numbers] of Object.entries(map)) {
    for (const number of numbersIn(group, numbers, count)) {
      const other = groupOf.get(number);
      if (other !== undefined) {
        throw new LockArgumentError(
          `map gives virtual service ${number} to two groups, or twice: ${other} and ${group}`,
        );
      }
      groupOf.set(number, group);
    }
  }
  return Array.from({ length: count }, (_, number) => {
    const group = groupOf.get(number);
    if (group !== undefined) return group;
    throw new LockArgumentError(`map gives virtual service ${number} no group`);
  });
}

function numbersIn(group: string, numbers: string, count: number): readonly number[] {
  if (typeof numbers !== 'string' || !NUMBERS.test(numbers)) {
    throw new LockArgumentError(
      `map must list numbers and ranges as 0-31,40 ${group}=${String(numbers)}`,
    );
  }
  return numbers.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    if (first <= last && last < count) {
      return Array.from({ length: last - first + 1 }, (_, at) => first + at);
    }
    throw new LockArgumentError(
      `map has a number out of range: virtual services are 0 to ${count - 1} ${group}=${range}`,
    );
  });
}
