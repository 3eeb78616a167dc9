import { startLocalRedis, WorkerProcess } from '@fenced/testbed';
import { expect, test } from 'vitest';

const COMMANDS = 'inspect promise admit acquire confirm extend release status'.split(' ');
const STEPS = [...COMMANDS, 'duplicate', 'subscribe', 'message'];
const MOMENTS = ['before', 'on its way', 'after'];

test.each([1, 3])(
  'if connections are lost at any step, each call has an outcome, and no rejection is unhandled: %i nodes (redis-semaphore#24, redis-semaphore#9, redis-semaphore#199, outline#12049)',
  { timeout: 60_000 },
  async (count) => {
    await using service = await startLocalRedis(count);
    const lines: string[] = [];
    await using worker = await WorkerProcess.start(
      new URL('./harness/lost-connections.ts', import.meta.url),
      {
        args: [JSON.stringify({ ports: service.nodes.map(({ port }) => port) })],
        env: { NODE_OPTIONS: '--unhandled-rejections=strict' },
        onLine: (line) => lines.push(line),
      },
    );
    const exit = await worker.exited;
    expect(worker.stderr).toBe('');
    expect(exit).toMatchObject({ code: 0 });
    // A single node needs no confirmation.
    const steps = STEPS.filter((step) => step !== 'confirm' || count > 1);
    const moments = steps.flatMap((step) => MOMENTS.map((moment) => `${step} ${moment}`));
    // The program does not send messages, it gets them. So it sees none on its way.
    moments.splice(moments.indexOf('message on its way'), 1);
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      [...moments, 'connect before'].toSorted(),
    ]);
  },
);
