import { describe, expect, test } from 'vitest';
import { checkHistory } from './checker.js';
import type { Event, Operation, Phase } from './history.js';
import { locks } from './job.js';
import { stories } from './stories/all.js';
import { missingStep, variantsOf } from './stories/story.js';

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

/** A client's whole work: from its request for the lock to the reply to its write. */
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

describe('the checker', () => {
  test('safe: every acknowledged update is in the document', () => {
    const both = [...work(1, 'ok'), ...work(2, 'ok'), final('client 1', 'client 2')];
    expect(checkHistory(both, null).verdict).toBe('safe');
    expect(
      checkHistory([...work(1, 'refused'), ...work(2, 'ok'), final('client 2')], null).verdict,
    ).toBe('safe');
  });

  test('the reason names a client that wrote nothing', () => {
    const events = [...work(1, 'ok'), event('client 2', 'acquire', 'refused'), final('client 1')];
    expect(checkHistory(events, null)).toEqual({
      verdict: 'safe',
      reason: 'client 1 was acknowledged, client 2 wrote nothing, and the document agrees',
    });
  });

  test('lost: an acknowledged update of either client is missing', () => {
    for (const survivor of ['client 1', 'client 2']) {
      const events = [...work(1, 'ok'), ...work(2, 'ok'), final(survivor)];
      expect(checkHistory(events, null).verdict).toBe('lost');
    }
    expect(checkHistory([...work(2, 'ok'), final()], null).verdict).toBe('lost');
  });

  test('phantom: a refused update is in the document, or an update is there twice', () => {
    const refused = [...work(1, 'refused'), ...work(2, 'ok'), final('client 1', 'client 2')];
    expect(checkHistory(refused, null).verdict).toBe('phantom');
    expect(checkHistory([...work(2, 'ok'), final('client 2', 'client 2')], null).verdict).toBe(
      'phantom',
    );
  });

  test('safe: an update with an unknown outcome may be there or not', () => {
    for (const lines of [['client 2'], ['client 1', 'client 2']]) {
      const events = [...work(1, 'unknown'), ...work(2, 'ok'), final(...lines)];
      expect(checkHistory(events, null).verdict).toBe('safe');
    }
  });

  test('disorder: a later lease has an equal or lower token; overlapping acquisitions have no order', () => {
    for (const token of ['33', '32']) {
      const events = [
        ...work(1, 'ok', '33'),
        ...work(2, 'ok', token),
        final('client 1', 'client 2'),
      ];
      expect(checkHistory(events, null).verdict).toBe('disorder');
    }
    const overlapping = [
      event('client 2', 'acquire', 'invoke'),
      ...work(1, 'ok', '34'),
      event('client 2', 'acquire', 'ok', { token: '33' }),
      ...work(2, 'ok'),
      final('client 1', 'client 2'),
    ];
    expect(checkHistory(overlapping, null).verdict).toBe('safe');
  });

  test('disorder: two leases have one token, even if their acquisitions overlapped', () => {
    const events = [
      event('client 2', 'acquire', 'invoke'),
      ...work(1, 'ok', '33'),
      event('client 2', 'acquire', 'ok', { token: '33' }),
      ...work(2, 'ok'),
      final('client 1', 'client 2'),
    ];
    expect(checkHistory(events, null)).toEqual({
      verdict: 'disorder',
      reason: 'token 33 was issued twice',
    });
  });

  test('disorder: a lease counts from its own acquisition, not from an earlier one that was refused', () => {
    const events = [
      event('client 2', 'acquire', 'invoke'),
      event('client 2', 'acquire', 'refused'),
      ...work(1, 'ok', '34'),
      ...work(2, 'ok', '33'),
      final('client 1', 'client 2'),
    ];
    expect(checkHistory(events, null)).toMatchObject({
      verdict: 'disorder',
      reason: 'token 33 was issued after token 34',
    });
  });

  describe('when two clients believe in their leases at the same time', () => {
    const both = (tokens: readonly [string?, string?] = []) => [
      ...work(1, 'ok', tokens[0], 1_000),
      ...work(2, 'ok', tokens[1], 1_000),
    ];

    test('two holders: an update is lost', () => {
      expect(checkHistory([...both(), final('client 1')], null)).toMatchObject({
        verdict: 'two holders',
        reason: expect.stringMatching(
          /^client 1 and client 2 both held the lock, for \d+ ms; the update of client 2 was/,
        ),
      });
      expect(checkHistory([...both(['33', '34']), final('client 1')], null).verdict).toBe(
        'two holders',
      );
    });

    test('lost: an update is lost because of the tokens, and the reason says so', () => {
      for (const [tokens, disorder] of [
        [['33', '33'], 'token 33 was issued twice'],
        [['33', '1'], 'token 1 was issued after token 33'],
      ] as const) {
        const { verdict, reason } = checkHistory([...both(tokens), final('client 1')], null);
        expect(verdict).toBe('lost');
        expect(reason).toContain(disorder);
      }
    });

    test('safe: nothing is lost, and the reason names both holders', () => {
      const events = [...both(['33', '34']), final('client 1', 'client 2')];
      expect(checkHistory(events, null)).toMatchObject({
        verdict: 'safe',
        reason: expect.stringContaining('both held the lock'),
      });
    });

    test('a lease that ended or was released is not held', () => {
      const over = [...work(1, 'ok', '33', 1), ...work(2, 'ok', '34', 1_000), final('client 1')];
      const givenUp = [
        ...work(1, 'ok', '33', 1_000),
        event('client 1', 'release', 'invoke'),
        ...work(2, 'ok', '34', 1_000),
        final('client 1'),
      ];
      for (const events of [over, givenUp]) {
        expect(checkHistory(events, null).verdict).toBe('lost');
        expect(checkHistory(events, null).reason).not.toContain('both held');
      }
    });
  });

  test('lost: the storage has forgotten a token that was presented to it', () => {
    const end = (token: string) => event('storage', 'final', 'ok', { lines: ['client 2'], token });
    expect(checkHistory([...work(2, 'ok', '35'), end('34')], null).verdict).toBe('lost');
    expect(checkHistory([...work(2, 'ok', '35'), end('35')], null).verdict).toBe('safe');
  });

  test('refused: no client wrote at all', () => {
    const refusal = event('client 1', 'probe', 'refused');
    expect(checkHistory([refusal, final()], null).verdict).toBe('refused');
    expect(checkHistory([refusal, final('client 1')], null).verdict).toBe('unknown');
    expect(checkHistory([refusal, ...work(2, 'unknown'), final()], null).verdict).toBe('unknown');
  });

  test('unknown: nothing was tested', () => {
    expect(checkHistory([], null).verdict).toBe('unknown');
    expect(checkHistory(work(1, 'ok'), null).verdict).toBe('unknown');
    expect(checkHistory([...work(1, 'refused'), final()], null).verdict).toBe('unknown');
    expect(checkHistory([...work(1, 'unknown'), final('client 1')], null).verdict).toBe('unknown');
    expect(checkHistory([...work(2, 'ok'), final('client 2')], 'no pause').verdict).toBe('unknown');
  });
});

test.each(stories.map((story) => [story.title, story] as const))(
  'an empty or incomplete history is not the story of "%s"',
  (_, story) => {
    expect(missingStep(story, [])).not.toBeNull();
    // Both clients did their work, without any fault.
    expect(missingStep(story, [...work(1, 'ok'), ...work(2, 'ok')])).not.toBeNull();
  },
);

test('each do-it-yourself lock fails in its story', () => {
  const naive = stories.flatMap(variantsOf).filter(({ lock }) => lock !== 'fenced');
  expect(new Set(naive.map(({ lock }) => lock))).toEqual(new Set(locks.slice(1)));
  for (const { pinned } of naive) expect(pinned).not.toBe('safe');
});
