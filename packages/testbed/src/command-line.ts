/** The command line is wrong. The message says why. */
export class UsageError extends Error {}

/** `EX_USAGE` of BSD's `sysexits.h`. */
const EXIT_USAGE = 64;

/**
 * Returns the result of `read`, which reads the command line, usually with `parseArgs`.
 *
 * `--help` prints `usage` and ends the process with exit code 0. An unknown option, an option
 * without its value or a {@link UsageError} ends it with 64, and with the usage on standard error.
 */
export function readCommandLine<Values>(usage: string, read: () => Values): Values {
  if (process.argv.slice(2).some((word) => word === '--help' || word === '-h')) {
    process.stdout.write(`${usage}\n`);
    process.exit(0);
  }
  try {
    return read();
  } catch (error) {
    if (!isUsageError(error)) throw error;
    process.stderr.write(`${error.message}\n\n${usage}\n`);
    process.exit(EXIT_USAGE);
  }
}

function isUsageError(error: unknown): error is Error {
  if (error instanceof UsageError) return true;
  return error instanceof TypeError && String(Object(error).code).startsWith('ERR_PARSE_ARGS_');
}
