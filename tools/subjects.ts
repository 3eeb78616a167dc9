import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { readCommandLine } from '../packages/testbed/src/command-line.ts';

const USAGE = `node tools/subjects.ts

Checks the subjects of the commits since a base: \`scope: text\`, 72 characters at most, no full stop.
A tree without Git history, or a clone that is too shallow, has nothing to check.`;

/** Only subjects after this commit are checked: earlier ones are older than the rule. */
const since = '2276b7faf62a95721f318debad30f306f0693788';
const SUBJECT = /^[a-z0-9-]+(?:, [a-z0-9-]+)*: \S.{0,70}[^.\s]$/;

readCommandLine(USAGE, () => parseArgs({}));
const wrong = subjects().filter((subject) => subject.length > 72 || !SUBJECT.test(subject));
for (const subject of wrong) {
  process.stdout.write(
    `commit subject: ${subject}\n  write \`scope: text\`, at most 72 characters, no full stop\n`,
  );
}
if (wrong.length > 0) process.exitCode = 1;

function subjects(): string[] {
  try {
    const range = ['log', '--no-merges', '--format=%s', `${since}..HEAD`];
    return execFileSync('git', range, { encoding: 'utf8', stdio: 'pipe' })
      .split('\n')
      .filter(Boolean);
  } catch {
    return [];
  }
}
