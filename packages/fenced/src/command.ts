/** One subcommand. */
export interface Command {
  readonly name: string;
  /** How it is called, and what it does. */
  readonly usage: string;
  /** @returns the exit code. @throws {UsageError} where the arguments cannot be understood. */
  run(args: readonly string[]): Promise<number>;
}

/** The command line cannot be understood; the message says what is wrong with it. */
export class UsageError extends Error {}

/** Every command's exit codes. */
export const EXIT = { ok: 0, refused: 1, usage: 2, failed: 3 } as const;
