// Holds a lease of 1 s in a routine. Prints its state at the first statement after the place where
// the process can be stopped.
import { writeSync } from 'node:fs';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix } = JSON.parse(process.argv[2] ?? '');
const clients: Redis[] = ports.map((port: number) => new Redis(port));
for (const client of clients) client.on('error', () => {});
const nodes = clients.map((client, at) => ({ name: String.fromCharCode(97 + at), client }));
const redlock = new Redlock({ nodes, keyPrefix });

const outcome = await redlock
  .using('x', { ttlMs: 1_000, waitMs: 20_000 }, (lease) => {
    const { signal } = lease;
    lease.ensure();
    const wasAborted = signal.aborted;
    writeSync(1, `${JSON.stringify({ held: String(lease.token), wasAborted })}\n`);
    // Between this statement and the next, only the process itself is stopped.
    const remainingMs = lease.remainingMs();
    let error = '';
    try {
      lease.ensure();
    } catch (thrown) {
      error = thrown instanceof Error ? thrown.name : 'something else';
    }
    const reason = signal.reason instanceof Error ? signal.reason.name : 'none';
    writeSync(1, `${JSON.stringify({ remainingMs, isAborted: signal.aborted, reason, error })}\n`);
    return 'done';
  })
  .catch((error: unknown) => (error instanceof Error ? error.name : 'something else'));
writeSync(1, `${JSON.stringify({ outcome })}\n`);
for (const client of clients) client.disconnect();
