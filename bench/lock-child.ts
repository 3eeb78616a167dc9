/** One lock in a process of its own, so that what it leaves behind or breaks is nobody else's. Does what it is ordered to. */
import { Redis } from 'ioredis';
import { cycles } from './lock-cycles.ts';
import { hold } from './lock-hold.ts';
import type { ChildOptions, CyclesReport, HoldReport, Order } from './lock-orders.ts';
import { subjectNamed } from './lock-subjects.ts';

const options: ChildOptions = JSON.parse(process.argv[2] ?? '');
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

process.on('message', (order: Order) => {
  uncaught = 0;
  obey(order).then(
    (report) => process.send?.(report),
    (error) => {
      process.stderr.write(`${error instanceof Error ? error.stack : error}\n`, () =>
        process.exit(1),
      );
    },
  );
});
// Whoever gives the orders has ended.
process.on('disconnect', () => process.exit());
process.send?.('ready');

async function obey(order: Order): Promise<CyclesReport | HoldReport> {
  if (order.kind === 'hold') return await hold(acquire, order);
  const report = await cycles(acquire, clients, order);
  return { ...report, failures: report.failures + uncaught };
}
