/** A message to the guard. Deadlines are in milliseconds of `machineMs`. */
export type Order =
  | {
      readonly kind: 'start';
      /** The id of the job, which is also in `env`. */
      readonly id: string;
      readonly command: readonly string[];
      /** Added to the environment. */
      readonly env: Readonly<Record<string, string>>;
      readonly deadlineMs: number;
      readonly graceMs: number;
    }
  | { readonly kind: 'deadline'; readonly deadlineMs: number }
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals };

/** A message of the guard. */
export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'stuck'; readonly processes: readonly string[] }
  | ({ readonly kind: 'ended' } & Ended);

/** The end of a command, and of every process of its job except those that are `stuck`. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /**
   * Why the command did not end by itself. `deadline`: its lease was about to end. `late`: that was
   * so already before it was started.
   */
  readonly why: 'deadline' | 'late' | 'not-executable' | 'guard-lost' | null;
  /** The processes that go on although the lease is over, because SIGKILL does not end them. */
  readonly stuck: readonly string[];
}
