import { LockArgumentError } from './errors.js';

/** Limit of the virtual services. It is far above the number of groups that anybody needs. */
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
  const groupOf = groupsIn('map', count, map);
  return Array.from({ length: count }, (_, number) => {
    const group = groupOf.get(number);
    if (group !== undefined) return group;
    throw new LockArgumentError(`map gives virtual service ${number} no group`);
  });
}

/**
 * Returns the next group of each virtual service that moves, by its number.
 *
 * @param present as `resolveMap` returns it
 * @throws {LockArgumentError} a virtual service moves to two groups, or to its own one
 */
export function resolveNext(
  present: readonly string[],
  next: Readonly<Record<string, string>>,
): ReadonlyMap<number, string> {
  const groupOf = groupsIn('next', present.length, next);
  for (const [number, group] of groupOf) {
    if (present[number] === group) {
      throw new LockArgumentError(
        `next gives virtual service ${number} to ${group}, which map does already`,
      );
    }
  }
  return groupOf;
}

/** @param field the name of `map` for messages */
function groupsIn(
  field: string,
  count: number,
  map: Readonly<Record<string, string>>,
): Map<number, string> {
  const groupOf = new Map<number, string>();
  for (const [group, numbers] of Object.entries(map)) {
    for (const number of numbersIn(field, group, numbers, count)) {
      const other = groupOf.get(number);
      if (other !== undefined) {
        throw new LockArgumentError(
          `${field} gives virtual service ${number} to two groups, or twice: ${other} and ${group}`,
        );
      }
      groupOf.set(number, group);
    }
  }
  return groupOf;
}

function numbersIn(
  field: string,
  group: string,
  numbers: string,
  count: number,
): readonly number[] {
  if (typeof numbers !== 'string' || !NUMBERS.test(numbers)) {
    throw new LockArgumentError(
      `${field} must list numbers and ranges as 0-31,40 ${group}=${String(numbers)}`,
    );
  }
  return numbers.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    if (first <= last && last < count) {
      return Array.from({ length: last - first + 1 }, (_, at) => first + at);
    }
    throw new LockArgumentError(
      `${field} has a number out of range: virtual services are 0 to ${count - 1} ${group}=${range}`,
    );
  });
}
