/** The part of an event emitter that `Connection` uses. */
export interface ConnectionEvents {
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'ready' | 'end', listener: () => void): unknown;
}

/**
 * The last error of a client's connection, and the callers that wait for the connection. All lock
 * services of a client share one, because it never removes its listeners.
 */
export class Connection {
  /** The error that came last, unless the connection is ready again. */
  lastError: Error | null = null;
  readonly #waiting = new Set<() => void>();

  constructor(events: ConnectionEvents, onError: (error: Error) => void) {
    events.on('error', (error) => {
      this.lastError = error;
      onError(error);
    });
    events.on('ready', () => {
      this.lastError = null;
      this.settle();
    });
    events.on('end', () => this.settle());
  }

  /** Calls back once after the next `settle`. The same function is kept once. */
  onceConnected(callback: () => void): void {
    this.#waiting.add(callback);
  }

  /** The connection is ready, or the client has given up. */
  settle(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const callback of waiting) callback();
  }
}
