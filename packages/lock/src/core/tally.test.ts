import { expect, test } from 'vitest';
import { majorityOf } from './quorum.js';
import { callsForReadmission, decide, retryAfterMs, type Vote } from './tally.js';

const error = new Error('connection refused');

function anyCalls(votes: readonly Vote[]): boolean {
  return votes.some((_, index) => callsForReadmission(votes, index));
}

const one = { generation: 1, incarnation: 'one' };
const two = { generation: 2, incarnation: 'two' };

const stranger: Vote = { answer: 'config-mismatch', knownAs: 'a', members: ['a', 'z'] };
const older: Vote = { answer: 'wrong-version', storageVersion: 0 };

function granted(token: bigint, nodeCount: number): Vote {
  return { answer: 'granted', token, ...one, roster: Array(nodeCount).fill(one) };
}

function alphabet(nodeCount: number): Vote[] {
  return [
    { answer: 'pending' },
    granted(33n, nodeCount),
    granted(34n, nodeCount),
    { answer: 'held', remainingMs: 500, timeMs: 0 },
    { answer: 'not-voting' },
    { answer: 'error', error },
  ];
}

function highestOf(votes: readonly Vote[]): bigint {
  const tokens = votes.flatMap((vote) => (vote.answer === 'granted' ? [vote.token] : []));
  return tokens.reduce((highest, token) => (token > highest ? token : highest), 0n);
}

function words(length: number, letters: Vote[]): Vote[][] {
  if (length === 0) return [[]];
  return words(length - 1, letters).flatMap((word) => letters.map((letter) => [...word, letter]));
}

test.each([1, 2, 3, 4, 5])(
  'every combination of votes of %i nodes is won, lost or open, as a count of its grants says',
  (nodeCount) => {
    const majority = majorityOf(nodeCount);
    for (const votes of words(nodeCount, alphabet(nodeCount))) {
      const grants = votes.flatMap((vote) => (vote.answer === 'granted' ? [vote.token] : []));
      const highest = grants.toSorted().at(-1);
      const confirmed = grants.filter((token) => token === highest).length;
      const pending = votes.filter((vote) => vote.answer === 'pending').length;
      const decision = decide(votes);
      if (confirmed >= majority) {
        expect(decision).toEqual({ state: 'won', token: highest });
      } else if (grants.length + pending < majority) {
        expect(decision.state).toBe('lost');
      } else {
        const laggards = [...votes.keys()].filter((index) => {
          const vote = votes[index];
          return vote?.answer === 'granted' && vote.token !== highest;
        });
        expect(decision).toEqual({
          state: 'open',
          token: highest ?? 0n,
          laggards: grants.length >= majority ? laggards : [],
        });
      }
    }
  },
);

test('no later vote makes a lost acquisition a won one, or a won one a lost one', () => {
  const nodeCount = 3;
  const letters = alphabet(nodeCount);
  for (const votes of words(nodeCount, letters)) {
    const decision = decide(votes);
    if (decision.state === 'open') continue;
    for (const later of words(nodeCount, letters)) {
      const all = votes.map((vote, at) => (vote.answer === 'pending' ? (later[at] as Vote) : vote));
      if (decision.state === 'lost') expect(decide(all).state).toBe('lost');
      // A higher grant would have to be confirmed. It may not turn the win into a loss.
      else if (decision.state === 'won' && highestOf(all) > decision.token)
        expect(decide(all)).toMatchObject({ state: 'open', token: highestOf(all) });
      else expect(decide(all)).toEqual(decision);
    }
  }
});

test('if one node grants a higher token than the others, they must confirm it before the lock is won', () => {
  const votes = [granted(33n, 3), granted(34n, 3), granted(33n, 3)];
  expect(decide(votes)).toEqual({ state: 'open', token: 34n, laggards: [0, 2] });
  expect(decide([granted(34n, 3), granted(34n, 3), granted(33n, 3)])).toEqual({
    state: 'won',
    token: 34n,
  });
  expect(decide([{ answer: 'not-held' }, granted(34n, 3), { answer: 'not-held' }])).toEqual({
    state: 'lost',
    reason: 'held',
  });
});

test('confirmations of superseded incarnations do not make a quorum', () => {
  const old: Vote = { answer: 'granted', token: 33n, ...one, roster: [one, one, one] };
  const knows: Vote = { answer: 'granted', token: 33n, ...one, roster: [two, one, one] };
  expect(decide([old, knows, { answer: 'error', error }]).state).toBe('lost');
  expect(decide([old, knows, { answer: 'pending' }]).state).toBe('open');
  expect(decide([old, knows, { ...knows, roster: [one, one, one] }]).state).toBe('won');
});

test('a client readmits nodes that have no vote, or whose vote does not count', () => {
  const old: Vote = { answer: 'granted', token: 33n, ...one, roster: [one, one, one] };
  const knows: Vote = { answer: 'granted', token: 33n, ...one, roster: [two, one, one] };
  expect(anyCalls([old, granted(1n, 3), { answer: 'held', remainingMs: 1, timeMs: 0 }])).toBe(
    false,
  );
  expect(anyCalls([old, knows, { answer: 'pending' }])).toBe(true);
  expect(anyCalls([{ answer: 'not-voting' }, granted(1n, 3), old])).toBe(true);
});

const held: Vote = { answer: 'held', remainingMs: 1, timeMs: 0 };
const failed: Vote = { answer: 'error', error };
const tooLong: Vote = { answer: 'ttl-too-long', maxTtlMs: 5 };
const losses: [string, Vote[]][] = [
  ['held', [held, held, failed]],
  ['held', [granted(1n, 3), held, held]],
  ['no-quorum', [held, failed, failed]],
  ['no-quorum', [{ answer: 'not-voting' }, { answer: 'not-voting' }, granted(1n, 3)]],
  ['config-mismatch', [stranger, stranger, granted(1n, 3)]],
  ['wrong-version', [older, stranger, granted(1n, 3)]],
  ['ttl-too-long', [tooLong, tooLong, held]],
  ['token-exhausted', [{ answer: 'token-exhausted' }, { answer: 'token-exhausted' }, held]],
  // The refusal of one node does not decide while a majority of the others could grant.
  ['held', [{ answer: 'token-exhausted' }, held, held]],
  ['held', [stranger, held, granted(1n, 3)]],
  ['no-quorum', [stranger, failed, granted(1n, 3)]],
];
test.each(losses)('the reason of a loss is %s', (reason, votes) => {
  expect(decide(votes)).toEqual({ state: 'lost', reason });
});

test('an acquisition that cannot win waits for more nodes as long as they could show a wrong configuration', () => {
  const pending: Vote = { answer: 'pending' };
  const open = { state: 'open', token: 0n, laggards: [] };
  const late: Vote[] = [{ answer: 'not-voting' }, { answer: 'not-voting' }, stranger];
  expect(decide([...late, pending, pending])).toEqual(open);
  expect(decide([...late, older, pending])).toEqual(open);
  expect(decide([...late, stranger, stranger])).toMatchObject({ reason: 'config-mismatch' });
  expect(decide([...late, stranger, older])).toMatchObject({ reason: 'wrong-version' });
  expect(decide([...late, stranger, failed])).toMatchObject({ reason: 'no-quorum' });
  // Once the reason is decided, the acquisition waits for no other node.
  expect(decide([stranger, stranger, stranger, pending, pending])).toMatchObject({
    reason: 'config-mismatch',
  });
  expect(decide([failed, failed, stranger, { answer: 'not-voting' }, pending])).toMatchObject({
    reason: 'no-quorum',
  });
});

test('a retry is worth while once so many leases have ended that a majority is free', () => {
  const held = (remainingMs: number): Vote => ({ answer: 'held', remainingMs, timeMs: 0 });
  expect(retryAfterMs([held(300), held(100), held(200)])).toBe(200);
  expect(retryAfterMs([held(300), granted(1n, 3), held(200)])).toBe(200);
  expect(retryAfterMs([{ answer: 'error', error }, { answer: 'error', error }, held(5)])).toBe(0);
});
