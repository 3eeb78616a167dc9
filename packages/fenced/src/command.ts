/** One subcommand. */
export interface Command {
  /** Its purpose, in one line. */
  readonly summary: string;
  /** Its options and exit codes. */
  readonly usage: string;
  /** @returns the exit code */
  run(args: readonly string[]): Promise<number>;
}

/** A mistake in the command line. */
export class UsageError extends Error {}

/** The exit code for a mistake in the command line, as in BSD's `sysexits.h`. */
export const EXIT_USAGE = 64;

/** Reads the command line. @throws {UsageError} for an unknown option, or one without its value */
export function understood<Values>(read: () => Values): Values {
  try {
    return read();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, 2));
}

/** Prints rows. Each column is as wide as its widest cell. */
export function printTable(rows: readonly (readonly string[])[]): void {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  for (const row of rows) {
    print(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
  }
}
