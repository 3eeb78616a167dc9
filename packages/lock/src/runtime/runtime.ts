import { randomUUID } from 'node:crypto';
import { LockArgumentError } from '../core/errors.js';
import { checkFields } from '../core/options.js';

/** Where time and chance come from. Tests and the simulation give their own; nothing else here reads a clock. */
export interface Runtime {
  /** Monotonic milliseconds: for durations, deadlines and validity. */
  nowMs(): number;
  /** Milliseconds since 1970. Only a seed for the tokens of nodes that start without memory. */
  wallClockMs(): number;
  /** A number from 0 up to but not including 1. */
  random(): number;
  /** A fresh name that nobody ever had, of 122 random bits. */
  uniqueId(): string;
  /**
   * Runs `callback` once everything that is ready to run has run: for who was called by an answer, before anything new is read from the
   * network; for who was called by a timer, after all that has come by then was read.
   */
  soon(callback: () => void): void;
  /**
   * Runs `callback` once after `delayMs`, unless the returned function is called before.
   * With `background` it does not keep a process alive that has nothing else to do.
   */
  after(delayMs: number, callback: () => void, background?: 'background'): () => void;
}

export const systemRuntime: Runtime = {
  nowMs: () => performance.now(),
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

/** That it is none: node-redlock takes its settings at that place. */
export function checkRuntime(runtime: unknown): void {
  if (runtime instanceof Object && PARTS.every((part) => part in runtime)) return;
  checkFields('the second argument, a Runtime for tests', runtime, PARTS);
  throw new LockArgumentError(`a Runtime has the functions ${PARTS.join(', ')}`);
}

/** As `runtime.after`, for what answers call off: a process that stood still reads those that have come before it takes them for late. */
export function afterReading(runtime: Runtime): Runtime['after'] {
  return (delayMs, callback, background) => {
    let isOff = false;
    const ring = (): void => {
      // What was read since the timer fired may have called it off.
      if (!isOff) callback();
    };
    const cancel = runtime.after(delayMs, () => runtime.soon(ring), background);
    return () => {
      isOff = true;
      cancel();
    };
  };
}

/** Resolves after `delayMs`, or once `woken` does; rejects with the signal's reason as soon as it aborts. */
export function sleep(
  runtime: Runtime,
  delayMs: number,
  signal: AbortSignal,
  woken?: Promise<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const wake = (): void => {
      cancel();
      ignoreAbort();
      resolve();
    };
    const cancel = runtime.after(delayMs, wake);
    void woken?.then(wake);
    const ignoreAbort = onAbort(signal, () => {
      cancel();
      reject(signal.reason);
    });
  });
}

/** Who did not answer in time. */
export interface Silent {
  /** What its client says of the connection, for the message. */
  readonly state: string;
  /** The error with its cause, where that is known. */
  explained(error: Error): Error;
}

/** Where no client stands behind what is waited for. */
export const nobody: Silent = { state: '', explained: (error) => error };

export function noAnswer(
  limitMs: number,
  node: Silent,
): { readonly answer: 'error'; readonly error: Error } {
  const error = new Error(`no answer within ${Math.ceil(limitMs)} ms${node.state}`);
  return { answer: 'error', error: node.explained(error) };
}

/**
 * The reply of a node, or that it did not come within `limitMs`. The request itself goes on: it may still be carried out.
 */
export function inTime<Reply>(
  runtime: Runtime,
  node: Silent,
  reply: Promise<Reply>,
  limitMs: number,
): Promise<Reply | { readonly answer: 'error'; readonly error: Error }> {
  return new Promise((resolve) => {
    const cancel = afterReading(runtime)(limitMs, () => resolve(noAnswer(limitMs, node)));
    void reply.then((value) => {
      cancel();
      resolve(value);
    });
  });
}

/**
 * Who is to hear of an abort, in a ring with the others. Where things come and go all the time, a `Set` or a `Map` keeps them from every
 * minor garbage collection: its tables refer to each other, from one that is old to all that came after it.
 */
class Listener {
  readonly hear: () => void;
  #before: Listener = this;
  #next: Listener = this;

  constructor(hear: () => void) {
    this.hear = hear;
  }

  get next(): Listener {
    return this.#next;
  }

  joinBefore(other: Listener): void {
    this.#before = other.#before;
    this.#next = other;
    this.#before.#next = this;
    other.#before = this;
  }

  leave(): void {
    this.#before.#next = this.#next;
    this.#next.#before = this.#before;
    this.#before = this;
    this.#next = this;
  }
}

/** Of each signal that many share, where the ring of its listeners begins and ends. */
const shared = new WeakMap<AbortSignal, Listener>();

/** For a signal that lives as long as its owner: to begin and to end to listen to it costs next to nothing from now on. */
export function shareSignal(signal: AbortSignal): void {
  const start = new Listener(() => {});
  shared.set(signal, start);
  signal.addEventListener('abort', () => {
    for (let listener = start.next; listener !== start; listener = start.next) {
      listener.leave();
      listener.hear();
    }
  });
}

/** Calls back once when the signal aborts, unless the returned function is called before. An abort before now is not told. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  const start = shared.get(signal);
  if (start) {
    const one = new Listener(listener);
    one.joinBefore(start);
    return () => one.leave();
  }
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

/** What the promise resolves to; null as soon as the signal aborts. What was asked for goes on all the same. */
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
