import { readFile } from 'node:fs/promises';
import { type Command, EXIT_USAGE, print, UsageError } from './command.js';

/** Each command loads only the libraries that it needs. */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  run: async () => (await import('./commands/run.js')).run,
  status: async () => (await import('./commands/status.js')).status,
  readmit: async () => (await import('./commands/readmit.js')).readmit,
  nodes: async () => (await import('./commands/nodes.js')).nodes,
  probe: async () => (await import('./commands/probe.js')).probe,
  gateway: async () => (await import('./commands/gateway.js')).gateway,
};

/**
 * Runs the command line that follows `fenced`.
 *
 * @returns the exit code: the subcommand's own, or 64 for a mistake in the command line
 */
export async function main(args: readonly string[]): Promise<number> {
  const [name = '', ...rest] = args;
  if (name === '--version') {
    print(await version());
    return 0;
  }
  const load = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (!load) {
    const isHelp = ['', 'help', '--help', '-h'].includes(name);
    if (!isHelp) process.stderr.write(`fenced: there is no command ${name}\n\n`);
    print(`fenced COMMAND --help\nfenced --version\n\n${await summaries()}`);
    return isHelp && name !== '' ? 0 : EXIT_USAGE;
  }
  const command = await load();
  // The arguments after -- belong to another program.
  const own = rest.slice(0, rest.includes('--') ? rest.indexOf('--') : rest.length);
  if (own.includes('--help') || own.includes('-h')) {
    print(command.usage);
    return 0;
  }
  try {
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const [synopsis] = command.usage.split('\n', 1);
    const help = `${synopsis}\nfenced ${name} --help explains the options\n`;
    process.stderr.write(`fenced ${name}: ${error.message}\n\n${help}`);
    return EXIT_USAGE;
  }
}

async function version(): Promise<string> {
  const manifest = await readFile(new URL('../package.json', import.meta.url), 'utf8');
  return JSON.parse(manifest).version;
}

async function summaries(): Promise<string> {
  const lines = Object.entries(commands).map(
    async ([name, load]) => `  ${name.padEnd(8)} ${(await load()).summary}`,
  );
  return (await Promise.all(lines)).join('\n');
}
