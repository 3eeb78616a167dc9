import { describe, expect, test } from 'vitest';
import type { Event, Operation, Phase } from './history.js';
import { locks } from './job.js';
import { scenarios } from './scenarios/all.js';
import { playsOf } from './scenarios/scenario.js';
import { judge } from './verdict.js';

let atMs = 0;
function event(
  actor: Event['actor'],
  operation: Operation,
  phase: Phase = 'ok',
  facts: Partial<Event> = {},
): Event {
  atMs += 1;
  return { atMs, actor, operation, phase, ...facts };
}

/** A client's whole work: from asking for the lock to the reply to its write. */
function work(number: 1 | 2, outcome: Phase, token?: string, validMs?: number): Event[] {
  const actor = `client ${number}` as const;
  const facts = { ...(token && { token }), ...(validMs && { validMs }) };
  const acquire =
    token || validMs
      ? [event(actor, 'acquire', 'invoke'), event(actor, 'acquire', 'ok', facts)]
      : [];
  return [
    ...acquire,
    event(actor, 'read', 'ok', { lines: [] }),
    event(actor, 'check', 'ok', { lines: [actor] }),
    event(actor, 'write', 'invoke'),
    event(actor, 'write', outcome),
  ];
}
const final = (...lines: string[]): Event => event('storage', 'final', 'ok', { lines });

describe('the judge', () => {
  test('finds every acknowledged update in a safe history', () => {
    const both = [...work(1, 'ok'), ...work(2, 'ok'), final('client 1', 'client 2')];
    expect(judge(both, null).verdict).toBe('safe');
    expect(judge([...work(1, 'refused'), ...work(2, 'ok'), final('client 2')], null).verdict).toBe(
      'safe',
    );
  });

  test('calls an acknowledged update that is missing lost, whoever made it', () => {
    for (const survivor of ['client 1', 'client 2']) {
      const events = [...work(1, 'ok'), ...work(2, 'ok'), final(survivor)];
      expect(judge(events, null).verdict).toBe('lost');
    }
    expect(judge([...work(2, 'ok'), final()], null).verdict).toBe('lost');
  });

  test('calls a refused update that is there, and an update that is there twice, a phantom', () => {
    const refused = [...work(1, 'refused'), ...work(2, 'ok'), final('client 1', 'client 2')];
    expect(judge(refused, null).verdict).toBe('phantom');
    expect(judge([...work(2, 'ok'), final('client 2', 'client 2')], null).verdict).toBe('phantom');
  });

  test('accepts either fate of an update whose outcome is unknown', () => {
    for (const lines of [['client 2'], ['client 1', 'client 2']]) {
      const events = [...work(1, 'unknown'), ...work(2, 'ok'), final(...lines)];
      expect(judge(events, null).verdict).toBe('safe');
    }
  });

  test('calls a later lease with an equal or lower token disorder, but not one of an overlapping attempt', () => {
    for (const token of ['33', '32']) {
      const events = [
        ...work(1, 'ok', '33'),
        ...work(2, 'ok', token),
        final('client 1', 'client 2'),
      ];
      expect(judge(events, null).verdict).toBe('disorder');
    }
    const overlapping = [
      event('client 2', 'acquire', 'invoke'),
      ...work(1, 'ok', '34'),
      event('client 2', 'acquire', 'ok', { token: '33' }),
      ...work(2, 'ok'),
      final('client 1', 'client 2'),
    ];
    expect(judge(overlapping, null).verdict).toBe('safe');
  });

  test('calls the same token twice disorder, also where the attempts overlapped', () => {
    const events = [
      event('client 2', 'acquire', 'invoke'),
      ...work(1, 'ok', '33'),
      event('client 2', 'acquire', 'ok', { token: '33' }),
      ...work(2, 'ok'),
      final('client 1', 'client 2'),
    ];
    expect(judge(events, null)).toEqual({
      verdict: 'disorder',
      reason: 'token 33 was given twice',
    });
  });

  test('compares a lease with the attempt that gave it, not with an earlier one of the same client', () => {
    const events = [
      event('client 2', 'acquire', 'invoke'),
      event('client 2', 'acquire', 'refused'),
      ...work(1, 'ok', '34'),
      ...work(2, 'ok', '33'),
      final('client 1', 'client 2'),
    ];
    expect(judge(events, null)).toMatchObject({
      verdict: 'disorder',
      reason: 'token 33 was given after token 34',
    });
  });

  describe('where two believed in their leases at the same time', () => {
    const both = (tokens: readonly [string?, string?] = []) => [
      ...work(1, 'ok', tokens[0], 1_000),
      ...work(2, 'ok', tokens[1], 1_000),
    ];

    test('calls a lost update two holders', () => {
      expect(judge([...both(), final('client 1')], null)).toMatchObject({
        verdict: 'two holders',
        reason: expect.stringMatching(
          /^client 1 and client 2 both held the lock, for \d+ ms; the update of client 2 was/,
        ),
      });
      expect(judge([...both(['33', '34']), final('client 1')], null).verdict).toBe('two holders');
    });

    test('calls it lost where their tokens were to blame, and says so', () => {
      for (const [tokens, disorder] of [
        [['33', '33'], 'token 33 was given twice'],
        [['33', '1'], 'token 1 was given after token 33'],
      ] as const) {
        const { verdict, reason } = judge([...both(tokens), final('client 1')], null);
        expect(verdict).toBe('lost');
        expect(reason).toContain(disorder);
      }
    });

    test('calls it safe where nothing was lost, and says so', () => {
      const events = [...both(['33', '34']), final('client 1', 'client 2')];
      expect(judge(events, null)).toMatchObject({
        verdict: 'safe',
        reason: expect.stringContaining('both held the lock'),
      });
    });

    test('does not call a lease held that was over, or given up', () => {
      const over = [...work(1, 'ok', '33', 1), ...work(2, 'ok', '34', 1_000), final('client 1')];
      const givenUp = [
        ...work(1, 'ok', '33', 1_000),
        event('client 1', 'release', 'invoke'),
        ...work(2, 'ok', '34', 1_000),
        final('client 1'),
      ];
      for (const events of [over, givenUp]) {
        expect(judge(events, null).verdict).toBe('lost');
        expect(judge(events, null).reason).not.toContain('both held');
      }
    });
  });

  test('calls it lost where the storage has forgotten a token that it was shown', () => {
    const end = (token: string) => event('storage', 'final', 'ok', { lines: ['client 2'], token });
    expect(judge([...work(2, 'ok', '35'), end('34')], null).verdict).toBe('lost');
    expect(judge([...work(2, 'ok', '35'), end('35')], null).verdict).toBe('safe');
  });

  test('calls it refused only where nobody wrote at all', () => {
    const refusal = event('client 1', 'probe', 'refused');
    expect(judge([refusal, final()], null).verdict).toBe('refused');
    expect(judge([refusal, final('client 1')], null).verdict).toBe('unknown');
    expect(judge([refusal, ...work(2, 'unknown'), final()], null).verdict).toBe('unknown');
  });

  test('knows nothing where nothing was shown', () => {
    expect(judge([], null).verdict).toBe('unknown');
    expect(judge(work(1, 'ok'), null).verdict).toBe('unknown');
    expect(judge([...work(1, 'refused'), final()], null).verdict).toBe('unknown');
    expect(judge([...work(1, 'unknown'), final('client 1')], null).verdict).toBe('unknown');
    expect(judge([...work(2, 'ok'), final('client 2')], 'no pause').verdict).toBe('unknown');
  });
});

test.each(scenarios.map((scenario) => [scenario.title, scenario] as const))(
  'an empty or incomplete history is not the story of "%s"',
  (_, scenario) => {
    expect(scenario.missing([])).not.toBeNull();
    // Both clients did their work, but nobody was stopped and no packet was late.
    expect(scenario.missing([...work(1, 'ok'), ...work(2, 'ok')])).not.toBeNull();
  },
);

test('what people do instead fails in the story that it is played in', () => {
  const naive = scenarios.flatMap(playsOf).filter(({ lock }) => lock !== 'fenced');
  expect(new Set(naive.map(({ lock }) => lock))).toEqual(new Set(locks.slice(1)));
  for (const { pinned } of naive) expect(pinned).not.toBe('safe');
});
