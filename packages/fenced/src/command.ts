/** One subcommand. */
export interface Command {
  /** What it is for, in a line. */
  readonly summary: string;
  /** Its options, and what its exit codes mean. */
  readonly usage: string;
  /** @returns the exit code */
  run(args: readonly string[]): Promise<number>;
}

/** The command line cannot be understood; the message says what is wrong with it. */
export class UsageError extends Error {}

/** As in BSD's `sysexits.h`: the command was used wrongly. */
export const EXIT_USAGE = 64;

/**
 * What `read` makes of the command line.
 *
 * @throws {UsageError} where `parseArgs` finds an option that there is not, or one without its value
 */
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

/** Rows of cells in columns that are as wide as their widest cell. */
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
