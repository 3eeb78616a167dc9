import { expect, test } from 'vitest';
import type { JobProcess } from './job.js';
import { JobWatch } from './job-watch.js';
import type { Ended } from './orders.js';

/** A job with a clock that the test moves. SIGKILL does not end a process that is stuck. */
function watched({ deadlineMs, graceMs }: { deadlineMs: number; graceMs: number }) {
  const own: JobProcess = { pid: 7, name: 'rsync', group: 7 };
  const world = { nowMs: 0, left: [own], signals: [] as string[], ended: [] as Ended[] };
  const stuck: (readonly string[])[] = [];
  const watch = new JobWatch({
    job: {
      isLed: true,
      signal: (signal) => void world.signals.push(`${signal} ${world.nowMs}`),
      processes: () => world.left,
    },
    nowMs: () => world.nowMs,
    ...{ deadlineMs, graceMs },
    onStuck: (processes) => void stuck.push(processes),
    onEnd: (ended) => void world.ended.push(ended),
  });
  const at = (nowMs: number): void => {
    world.nowMs = nowMs;
    watch.check();
  };
  return { world, watch, stuck, at };
}

test('a process that SIGKILL does not end: the job is not over while the deadline is moved', () => {
  const { world, watch, stuck, at } = watched({ deadlineMs: 10_000, graceMs: 1_000 });
  watch.exited({ code: 0, signal: null });
  for (const nowMs of [999, 1_000, 1_999, 2_000, 2_999]) at(nowMs);
  expect(world.signals).toEqual(['SIGTERM 1000', 'SIGKILL 2000', 'SIGKILL 2999']);
  expect(stuck).toEqual([]);
  at(3_000);
  expect(stuck).toEqual([['7 (rsync)']]);
  for (let nowMs = 3_025; nowMs < 100_000; nowMs += 1_000) {
    watch.setDeadline(nowMs + 10_000);
    at(nowMs);
  }
  expect(stuck).toHaveLength(1);
  expect(world.ended).toEqual([]);
  world.left = [];
  at(100_000);
  expect(world.ended).toEqual([{ code: 0, signal: null, why: null, stuck: [] }]);
});

test('a process that SIGKILL does not end: the job is over when its deadline has passed', () => {
  const { world, at } = watched({ deadlineMs: 10_000, graceMs: 1_000 });
  for (const nowMs of [8_999, 9_000, 9_999, 10_000, 10_999]) at(nowMs);
  expect(world.signals).toEqual(['SIGTERM 9000', 'SIGKILL 10000', 'SIGKILL 10999']);
  expect(world.ended).toEqual([]);
  at(11_000);
  const ended = { code: null, signal: null, why: 'deadline', stuck: ['7 (rsync)'] };
  expect(world.ended).toEqual([ended]);
});

test('the clock jumps past the deadline: SIGKILL comes at the first check', () => {
  const { world, at } = watched({ deadlineMs: 10_000, graceMs: 1_000 });
  at(60_000);
  expect(world.signals).toEqual(['SIGTERM 60000', 'SIGKILL 60000']);
});
