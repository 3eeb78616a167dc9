import { expect, test } from 'vitest';
import type { NodeAnswer } from './answers.js';
import { type AcquireFailure, failureError } from './failure.js';

const failure = (reason: AcquireFailure['reason'], nodes: readonly NodeAnswer[]) =>
  failureError({ ok: false, reason, nodes, retryAfterMs: 0 }, ['x'], 0).message;

const silent = (name: string): NodeAnswer => ({ name, answer: 'error' });

test('two nodes of which one is down are told that two need both', () => {
  const advice = 'too few nodes voted; two nodes do without none: take one or three';
  expect(failure('no-quorum', ['a', 'b'].map(silent))).toContain(advice);
  expect(failure('no-quorum', ['a', 'b', 'c'].map(silent))).toMatch(/^too few nodes voted \(/);
});

test('a lease that is too long is refused with the lowest limit of the nodes', () => {
  const limits = [silent('a'), ...[90, 60].map((maxTtlMs) => ({ ...silent('b'), maxTtlMs }))];
  expect(failure('ttl-too-long', limits)).toMatch(/maxTtlMs=60; ask for less, which using extends/);
});
