/**
 * The command that a shell job uses to read and write the document: `read FILE` and `write FILE`.
 * It presents the token that `fenced run` has put into the environment.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { openFenced, openPlain } from './documents/open.js';
import { isFenced, type Job } from './job.js';
import { Reported, report, step } from './journal.js';

const [, , command = '', file = ''] = process.argv;
const { JOB = '', FENCED_TOKEN = '', FENCED_DEADLINE_MS } = process.env;
const { storage, protection, line }: Job = JSON.parse(JOB);

async function read(): Promise<void> {
  const validMs = Number(FENCED_DEADLINE_MS) - Date.now();
  report('acquire', 'ok', { validMs, token: FENCED_TOKEN });
  await using document = await openPlain(storage);
  const lines = await step(
    'read',
    () => document.read(),
    (lines) => ({ lines }),
  );
  await writeFile(file, JSON.stringify(lines));
}

async function write(): Promise<void> {
  const lines = [...JSON.parse(await readFile(file, 'utf8')), line];
  report('check', 'ok', { lines });
  if (!isFenced(protection)) {
    await using document = await openPlain(storage);
    await step('write', () => document.write(lines));
    return;
  }
  await using document = await openFenced(storage);
  await step('write', () => document.put(lines, BigInt(FENCED_TOKEN)));
}

try {
  await (command === 'read' ? read() : write());
} catch (error) {
  if (!(error instanceof Reported)) throw error;
  process.exitCode = 1;
}
