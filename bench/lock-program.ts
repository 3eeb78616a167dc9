/**
 * Program of a `LockProcess`: one lock, which performs tasks. Its leftovers affect no other lock.
 */
import { Redis } from 'ioredis';
import { cycles } from './lock-cycles.ts';
import { hold } from './lock-hold.ts';
import { subjectNamed } from './lock-subjects.ts';
import type { CyclesReport, HoldReport, ProgramOptions, Task } from './lock-tasks.ts';

const options: ProgramOptions = JSON.parse(process.argv[2] ?? '');
const clients = options.ports.map(
  (port) => new Redis(port, { enableAutoPipelining: options.autoPipelining }),
);
// Without a listener ioredis prints each failure to connect.
for (const client of clients) client.on('error', () => {});
await Promise.all(clients.map((client) => client.ping()));
const acquire = await subjectNamed(options.subject).open(clients, options);

let uncaught = 0;
process.on('uncaughtException', () => {
  uncaught += 1;
});

process.on('message', (task: Task) => {
  uncaught = 0;
  perform(task).then(
    (report) => process.send?.(report),
    (error) => {
      process.stderr.write(`${error instanceof Error ? error.stack : error}\n`, () =>
        process.exit(1),
      );
    },
  );
});
// The bench has ended.
process.on('disconnect', () => process.exit());
process.send?.('ready');

async function perform(task: Task): Promise<CyclesReport | HoldReport> {
  if (task.kind === 'hold') return await hold(acquire, task);
  const report = await cycles(acquire, clients, task);
  return { ...report, failures: report.failures + uncaught };
}
