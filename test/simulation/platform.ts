import { createHash } from 'node:crypto';

/**
 * The parts of Node that a simulated world needs. `packages/page/src/simulator/platform.ts` takes
 * the place of this module in a browser.
 */

/** Runs `callback` after all reactions of promises that can run now. */
export function afterPromises(callback: () => void): void {
  process.nextTick(callback);
}

/** Resolves after a turn of the event loop, in which Node handles messages and frees objects. */
export function realEvents(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Calls the listener with each rejection that nothing handles. Returns a function that ends it. */
export function onUnhandledRejection(listener: (error: unknown) => void): () => void {
  process.on('unhandledRejection', listener);
  return () => process.off('unhandledRejection', listener);
}

/** The SHA-1 of a text in UTF-8, in hexadecimal digits. */
export function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex');
}
