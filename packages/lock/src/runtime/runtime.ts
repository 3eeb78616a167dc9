import { randomUUID } from 'node:crypto';
import { platform, uptime } from 'node:os';
import { LockArgumentError } from '../core/errors.js';
import { checkFields } from '../core/options.js';
import { machineClock } from './machine-clock.js';

/** The source of time and chance. Nothing else in this package reads a clock. */
export interface Runtime {
  /**
   * Monotonic milliseconds, also of the time that the machine sleeps: for durations, deadlines and
   * validity.
   */
  nowMs(): number;
  /**
   * Milliseconds since 1970, which may jump: for first tokens, enqueue times, reports, and
   * extensions by other processes.
   */
  wallClockMs(): number;
  /** A number from 0 up to but not including 1. */
  random(): number;
  /** A new name of 122 random bits. */
  uniqueId(): string;
  /**
   * Runs `callback` after everything that is ready to run. If it is called while an answer is being
   * handled, `callback` runs before any new answer is read. If a timer calls it, all answers that
   * have arrived are read before `callback` runs.
   */
  soon(callback: () => void): void;
  /**
   * Runs `callback` once after `delayMs`, unless the returned function is called before.
   * With `background`, it does not keep the process alive.
   */
  after(delayMs: number, callback: () => void, background?: 'background'): () => void;
}

export const systemRuntime: Runtime = {
  nowMs: machineClock({
    monotonicMs: () => performance.now(),
    wallMs: () => Date.now(),
    uptimeMs: platform() === 'linux' ? () => uptime() * 1_000 : () => performance.now(),
  }),
  wallClockMs: () => Date.now(),
  random: () => Math.random(),
  uniqueId: () => randomUUID(),
  soon: (callback) => setImmediate(callback),
  after: (delayMs, callback, background) => {
    const timer = setTimeout(callback, delayMs);
    if (background) timer.unref();
    return () => clearTimeout(timer);
  },
};

const PARTS = Object.keys(systemRuntime);

/** Throws if this is no `Runtime`. Former users of node-redlock may pass its settings here. */
export function checkRuntime(runtime: unknown): void {
  if (runtime instanceof Object && PARTS.every((part) => part in runtime)) return;
  checkFields('the second argument, a Runtime for tests', runtime, PARTS);
  throw new LockArgumentError(`a Runtime has the functions ${PARTS.join(', ')}`);
}

/**
 * As `runtime.after`, for a timer that an answer cancels. After a pause of the process, answers
 * that have arrived are read first. Only then does the timer call back.
 */
export function afterReading(runtime: Runtime): Runtime['after'] {
  return (delayMs, callback, background) => {
    let isOff = false;
    const ring = (): void => {
      // An answer that was read since the timer fired may have cancelled it.
      if (!isOff) callback();
    };
    const cancel = runtime.after(delayMs, () => runtime.soon(ring), background);
    return () => {
      isOff = true;
      cancel();
    };
  };
}

/**
 * Resolves after `delayMs`, or once `woken` does. Rejects with the signal's reason as soon as the
 * signal aborts.
 */
export function sleep(
  runtime: Runtime,
  delayMs: number,
  signal?: AbortSignal,
  woken?: Promise<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const wake = (): void => {
      cancel();
      ignoreAbort?.();
      resolve();
    };
    const cancel = runtime.after(delayMs, wake);
    void woken?.then(wake);
    const ignoreAbort =
      signal &&
      onAbort(signal, () => {
        cancel();
        reject(signal.reason);
      });
  });
}

/** A signal that aborts after `limitMs`, until it is disposed of. */
export function timeLimit(
  runtime: Runtime,
  limitMs: number,
): Disposable & { readonly signal: AbortSignal } {
  const over = new AbortController();
  const late = (): void => over.abort(noAnswer(limitMs, nobody).error);
  return { signal: over.signal, [Symbol.dispose]: runtime.after(limitMs, late) };
}

/** A node that has not answered in time. */
export interface Silent {
  /** The state of its connection, for the message. */
  readonly state: string;
  /** The error with its cause, if that is known. */
  explained(error: Error): Error;
  /** Called after `silentMs` without an answer. */
  noteSilence?(silentMs: number): void;
}

/** In place of a node, for a wait that concerns no single node. */
export const nobody: Silent = { state: '', explained: (error) => error };

export function noAnswer(
  limitMs: number,
  node: Silent,
): { readonly answer: 'error'; readonly error: Error } {
  const error = new Error(`no answer within ${Math.ceil(limitMs)} ms${node.state}`);
  return { answer: 'error', error: node.explained(error) };
}

/**
 * The reply of a node, or an error after `limitMs`. The request may still be carried out.
 */
export function inTime<Reply>(
  runtime: Runtime,
  node: Silent,
  reply: Promise<Reply>,
  limitMs: number,
): Promise<Reply | { readonly answer: 'error'; readonly error: Error }> {
  return new Promise((resolve) => {
    const late = (): void => {
      node.noteSilence?.(limitMs);
      resolve(noAnswer(limitMs, node));
    };
    const cancel = afterReading(runtime)(limitMs, late);
    void reply.then((value) => {
      cancel();
      resolve(value);
    });
  });
}

/**
 * Calls back once when the signal aborts, unless the returned function is called before. If the
 * signal has aborted already, it never calls back.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

/** The value of the promise, or null as soon as the signal aborts. The request itself goes on. */
export async function unlessAborted<Value>(
  promise: Promise<Value>,
  signal: AbortSignal,
): Promise<Value | null> {
  const { promise: aborted, resolve } = Promise.withResolvers<null>();
  const abort = (): void => resolve(null);
  const ignoreAbort = onAbort(signal, abort);
  if (signal.aborted) abort();
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    ignoreAbort();
  }
}
