/**
 * Signals that are forwarded to the command. SIGTSTP is one of them: by default, it would stop
 * `fenced run`, which would lose the lease. The kernel discards the forwarded SIGTSTP, because the
 * command's process group is orphaned.
 */
const FORWARDED = [
  ...(['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const),
  ...(['SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGTSTP'] as const),
];
/** Signals that end the wait for the lock. */
const ENDING: readonly NodeJS.Signals[] = FORWARDED.slice(0, 4);

/**
 * The signals that this process gets. Before the command runs, they end the wait. After that, they
 * are for the command.
 */
export class Signals implements Disposable {
  readonly #interrupt = new AbortController();
  #first: NodeJS.Signals | null = null;
  #forward: ((signal: NodeJS.Signals) => void) | null = null;

  constructor() {
    for (const name of FORWARDED) process.on(name, this.#onSignal);
  }

  /** Aborts with the first signal that ends the wait. */
  get interrupted(): AbortSignal {
    return this.#interrupt.signal;
  }

  /** The signal that ended the wait. */
  get first(): NodeJS.Signals | null {
    return this.#first;
  }

  forwardTo(forward: (signal: NodeJS.Signals) => void): void {
    this.#forward = forward;
  }

  [Symbol.dispose](): void {
    for (const name of FORWARDED) process.off(name, this.#onSignal);
  }

  readonly #onSignal = (signal: NodeJS.Signals): void => {
    if (this.#forward) this.#forward(signal);
    else if (ENDING.includes(signal)) {
      this.#first ??= signal;
      this.#interrupt.abort();
    }
  };
}
