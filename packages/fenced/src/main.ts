#!/usr/bin/env node
import { type Command, EXIT, UsageError } from './command.js';
import { probe } from './commands/probe.js';

const commands: readonly Command[] = [probe];

const USAGE = `fenced <command> …

${commands.map(({ usage }) => usage).join('\n\n')}

Exit codes: 0 yes, 1 no, 2 the command line is wrong, 3 nothing was learnt.`;

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === undefined || name === '--help' || name === '-h') {
    process.stdout.write(`${USAGE}\n`);
    return name === undefined ? EXIT.usage : EXIT.ok;
  }
  const command = commands.find((one) => one.name === name);
  try {
    if (command === undefined) throw new UsageError(`there is no such command: ${name}`);
    return await command.run(args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`${error.message}\n\n${command?.usage ?? USAGE}\n`);
    return EXIT.usage;
  }
}

process.exitCode = await main(process.argv.slice(2));
