import { expect, test } from 'vitest';
import { shortLine } from '../../packages/page/src/view/short-line.ts';

test.each([
  [
    '3.1 c0.1 → c: enqueue r c0.1-0b5-c0.1-5797003867abfcfa 17.8 {fenced}:notify:c0.1-67c414a014bb183a 40 = head',
    '3.1 c0.1 → c: enqueue r c0.1-0b5-c0.1-5797… 17.8 c0.1-67c4… 40 = head',
  ],
  [
    '4.2 c1.2 → a: acquire r c1.2-c20af9d989f2ae3c 23 = granted 1763690002938921 11 eae9e84e.1763690003.527000 0:,11:eae9e84e.1763690003.527000,5:aa93f113.1763690003.154000 0',
    '4.2 c1.2 → a: acquire r c1.2-c20a… 23 = granted 1763690002938921 11 eae9… [– eae9… aa93…] 0',
  ],
  ['0.1 c1.2 → a: confirm r 0000000000000054 = held', '0.1 c1.2 → a: confirm r 54 = held'],
])('a reader sees the short form of %s', (line, short) => {
  expect(shortLine(line)).toBe(short);
});

test.each([
  "VIOLATION: c1.2's 1763690004856 for r (3759.081–3779.204 ms) is extended",
  'fault 25: crash node=a client=c1 ms=0.0 memory=nothing',
])('the line is shown whole: %s', (line) => {
  expect(shortLine(line)).toBe(line);
});
