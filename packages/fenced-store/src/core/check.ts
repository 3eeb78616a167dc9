import { InvalidArgumentError } from './errors.js';
import { shown } from './shown.js';

/** Checks for callers without a type checker, before anything is sent. */

/** @throws {InvalidArgumentError} if it is not an object. */
export function checkObject(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null)
    throw new InvalidArgumentError(`${name} must be an object value=${shown(value)}`);
}

/** @throws {InvalidArgumentError} */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== 'function')
    throw new InvalidArgumentError(`${name} must be a function value=${shown(value)}`);
}

/** @throws {InvalidArgumentError} if it is neither undefined nor an `AbortSignal`. */
export function checkSignal(name: string, value: unknown): void {
  if (value === undefined) return;
  const { throwIfAborted, addEventListener } = (value ?? {}) as Record<string, unknown>;
  if (typeof throwIfAborted !== 'function' || typeof addEventListener !== 'function')
    throw new InvalidArgumentError(`${name} must be an AbortSignal value=${shown(value)}`);
}

/** @throws {InvalidArgumentError} if it is no whole number in the range. */
export function checkWholeNumber(name: string, value: number, min: number, max: number): void {
  if (!Number.isSafeInteger(value) || value < min || value > max)
    throw new InvalidArgumentError(
      `${name} must be a whole number from ${min} to ${max} value=${shown(value)}`,
    );
}

/** @throws {InvalidArgumentError} if a read was given a token. Names the call that takes one. */
export function checkNoToken(options: object, instead: string): void {
  if ('token' in options && options.token !== undefined)
    throw new InvalidArgumentError(
      `a read takes no token, because it writes nothing: call ${instead}, which claims the resource and reads it`,
    );
}
