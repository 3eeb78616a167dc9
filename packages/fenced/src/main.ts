import { type Command, EXIT_USAGE, print, UsageError } from './command.js';
import { admit } from './commands/admit.js';
import { gateway } from './commands/gateway.js';
import { probe } from './commands/probe.js';
import { status } from './commands/status.js';

const commands: Readonly<Record<string, Command>> = { status, admit, probe, gateway };

/**
 * Runs the command line that follows `fenced`.
 *
 * @returns the exit code: the subcommand's own, or 64 where the command line cannot be understood
 */
export async function main(args: readonly string[]): Promise<number> {
  const [name = '', ...rest] = args;
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (!command) {
    const isHelp = ['', 'help', '--help', '-h'].includes(name);
    if (!isHelp) process.stderr.write(`fenced: there is no command ${name}\n\n`);
    print(`fenced COMMAND --help\n\n${summaries()}`);
    return isHelp && name !== '' ? 0 : EXIT_USAGE;
  }
  if (rest.includes('--help') || rest.includes('-h')) {
    print(command.usage);
    return 0;
  }
  try {
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`fenced ${name}: ${error.message}\n\n${command.usage}\n`);
    return EXIT_USAGE;
  }
}

function summaries(): string {
  return Object.entries(commands)
    .map(([name, { summary }]) => `  ${name.padEnd(8)} ${summary}`)
    .join('\n');
}
