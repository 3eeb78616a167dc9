/** A message to the guard. Deadlines are in milliseconds of `machineMs`. */
export type Order =
  | {
      readonly kind: 'start';
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
  | ({ readonly kind: 'ended' } & Ended);

/** The end of a command, and of every process of its group. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The command was stopped because its lease was about to end. */
  readonly isStopped: boolean;
}
