import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type ElectionBoard, type ElectionLease, type ElectionLock, Elector } from './elector.js';

const TTL_MS = 200;

class CodedError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

/** A lock service in memory. `fail` makes it refuse all that is asked. */
class MemoryLock implements ElectionLock {
  fail: Error | null = null;
  asked = 0;
  #token = 33n;
  #held: AbortController | null = null;

  async acquire(...[, { ttlMs, signal }]: Parameters<ElectionLock['acquire']>) {
    this.asked += 1;
    while (this.#held && !this.#held.signal.aborted) {
      signal.throwIfAborted();
      await sleep(1);
    }
    if (this.fail) throw this.fail;
    return this.#grant(ttlMs);
  }

  #grant(ttlMs: number): ElectionLease {
    this.#token += 1n;
    const held = new AbortController();
    this.#held = held;
    let endMs = performance.now() + ttlMs;
    const remainingMs = (): number => {
      const leftMs = held.signal.aborted ? 0 : Math.max(0, endMs - performance.now());
      if (leftMs === 0) held.abort(new CodedError('lease-lost'));
      return leftMs;
    };
    const extend = async (ms: number): Promise<void> => {
      if (this.fail) throw this.fail;
      if (remainingMs() > 0) endMs = performance.now() + ms;
    };
    const timer = setInterval(() => remainingMs() === 0 && clearInterval(timer), 1);
    const release = async (): Promise<void> => held.abort();
    return { token: this.#token, signal: held.signal, remainingMs, extend, release };
  }
}

/** A board in memory that refuses stale tokens. */
class MemoryBoard implements ElectionBoard {
  text: string | null = null;
  highest = 0n;
  error: Error | null = null;
  /** While it is true, `publish` and `read` never settle. */
  hangs = false;
  reads = 0;
  /** The next notice arrives when this resolves. */
  late: Promise<void> | null = null;

  async publish(notice: string, token: bigint): Promise<void> {
    if (this.hangs) await new Promise(() => {});
    const late = this.late;
    this.late = null;
    await late;
    if (this.error) throw this.error;
    if (token < this.highest) throw new CodedError('stale-token');
    this.highest = token;
    this.text = notice;
  }

  async read(): Promise<string | null> {
    this.reads += 1;
    if (this.hangs) await new Promise(() => {});
    if (this.error) throw this.error;
    return this.text;
  }
}

const elect = (lock: ElectionLock, candidate: string, board?: ElectionBoard): Elector =>
  new Elector({ lock, resource: 'office', ttlMs: TTL_MS, candidate, ...(board && { board }) });

const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));

test('a leader leads beyond its TTL, until it resigns, and the next one has a greater token', async () => {
  const lock = new MemoryLock();
  await using a = elect(lock, 'a');
  await using b = elect(lock, 'b');
  const first = await a.campaign();
  expect(a.leadership).toBe(first);
  const campaign = b.campaign();
  await sleep(2 * TTL_MS);
  first.ensure();
  expect(b.leadership).toBeNull();
  await a.resign();
  expect([first.signal.aborted, first.remainingMs(), a.leadership]).toEqual([true, 0, null]);
  expect(() => first.ensure()).toThrow('has resigned');
  const second = await campaign;
  expect(second.token).toBeGreaterThan(first.token);
  expect(JSON.stringify(second)).toContain(`"token":"${second.token}"`);
});

test('a lost leadership aborts its signal, and its elector campaigns again', async () => {
  const lock = new MemoryLock();
  await using elector = elect(lock, 'a');
  const first = await elector.campaign();
  lock.fail = new CodedError('no-quorum');
  await aborted(first.signal);
  expect(first.signal.reason).toMatchObject({ code: 'lease-lost' });
  const campaign = elector.campaign();
  await sleep(20);
  lock.fail = null;
  expect((await campaign).token).toBeGreaterThan(first.token);
  expect(lock.asked).toBeGreaterThan(2);
});

test('a campaign ends by its signal, by resign, and by an error that waiting cannot cure', async () => {
  const lock = new MemoryLock();
  await using leader = elect(lock, 'leader');
  await leader.campaign();
  await expect(leader.campaign()).rejects.toThrow('resign first');
  await using other = elect(lock, 'other');
  const reason = new Error('enough');
  const ended = new AbortController();
  setTimeout(() => ended.abort(reason), 5);
  await expect(other.campaign({ signal: ended.signal })).rejects.toBe(reason);
  const campaign = other.campaign();
  await other.resign();
  await expect(campaign).rejects.toThrow(/aborted/);
  await leader.resign();
  lock.fail = new CodedError('config-mismatch');
  await expect(other.campaign()).rejects.toBe(lock.fail);
});

test('an observer sees leaders come and go, and reports unknown when the notices of a leader cease', async () => {
  const lock = new MemoryLock();
  const board = new MemoryBoard();
  await using a = elect(lock, 'a', board);
  await using b = elect(lock, 'b', board);
  const stop = new AbortController();
  const seen: string[] = [];
  const observer = elect(lock, 'observer', board).observe({ everyMs: 10, signal: stop.signal });
  const watching = (async () => {
    for await (const { state, candidate } of observer) seen.push(`${state} ${candidate}`);
  })();
  const until = async (last: string): Promise<void> => {
    while (seen.at(-1) !== last) await sleep(1);
  };
  await until('vacant null');
  await a.campaign();
  await until('led a');
  await a.resign();
  await until('vacant a');
  const term = await b.campaign();
  await until('led b');
  lock.fail = new CodedError('no-quorum');
  await aborted(term.signal);
  await until('unknown b');
  stop.abort();
  await expect(watching).rejects.toBe(stop.signal.reason);
  expect(seen).toEqual(['vacant null', 'led a', 'vacant a', 'led b', 'unknown b']);
  const late = elect(lock, 'late', board).observe();
  expect((await late.next()).value).toMatchObject({ state: 'unknown', candidate: 'b' });
  expect(() => elect(lock, 'none').observe()).toThrow('needs a board');
});

test('a leader whose notice is refused as stale is deposed, and its first notice must succeed', async () => {
  const lock = new MemoryLock();
  const board = new MemoryBoard();
  await using elector = elect(lock, 'a', board);
  const term = await elector.campaign();
  board.highest = term.token + 10n;
  await aborted(term.signal);
  expect(term.signal.reason).toMatchObject({ cause: { code: 'stale-token' } });
  await expect(elector.campaign()).rejects.toThrow('stale-token');
  board.error = new Error('no access');
  await expect(elector.campaign()).rejects.toThrow('no access');
  // The failed campaign kept no lease: the next one succeeds.
  board.error = null;
  board.highest = 0n;
  await elector.campaign();
});

test('a board that hangs neither deposes a leader nor keeps it from resigning', async () => {
  const board = new MemoryBoard();
  await using elector = elect(new MemoryLock(), 'a', board);
  const term = await elector.campaign();
  board.hangs = true;
  await sleep(2 * TTL_MS);
  term.ensure();
  await elector.resign();
  await expect(elector.campaign({ signal: AbortSignal.timeout(20) })).rejects.toThrow();
});

test.each(['resign', 'abort'] as const)(
  '%s during a campaign leaves no leader on the board, although the first notice is late',
  async (how) => {
    const board = new MemoryBoard();
    await using elector = elect(new MemoryLock(), 'a', board);
    const { promise, resolve } = Promise.withResolvers<void>();
    board.late = promise;
    const giveUp = new AbortController();
    const campaign = elector.campaign({ signal: giveUp.signal });
    const failed = expect(campaign).rejects.toThrow();
    await expect.poll(() => elector.leadership).not.toBeNull();
    const resigned = how === 'resign' ? elector.resign() : giveUp.abort();
    await expect.poll(() => elector.leadership).toBeNull();
    resolve();
    await Promise.all([failed, resigned]);
    expect(JSON.parse(board.text ?? '')).toMatchObject({ nextMs: 0 });
  },
);

test('an observer whose read hangs ends by its signal, and else reports that it knows nothing', async () => {
  const board = new MemoryBoard();
  const elector = elect(new MemoryLock(), 'a', board);
  await using _ = elector;
  await elector.campaign();
  const stop = new AbortController();
  const observer = elector.observe({ everyMs: 10, signal: stop.signal });
  const until = async (wanted: string): Promise<unknown> => {
    for (;;) {
      const { value } = await observer.next();
      if (value?.state === wanted) return value.error;
    }
  };
  await until('led');
  board.hangs = true;
  expect(await until('unknown')).toMatchObject({ message: expect.stringContaining('no answer') });
  const { reads } = board;
  const next = expect(observer.next()).rejects.toThrow('enough');
  await expect.poll(() => board.reads).toBeGreaterThan(reads);
  stop.abort(new Error('enough'));
  await next;
  board.hangs = false;
});

test.each([
  [{ everyMs: 0 }, 'everyMs=0'],
  [{ everyMs: -5 }, 'everyMs=-5'],
  [{ everyMs: Number.NaN }, 'everyMs=NaN'],
  [{ everyMs: 30 * 86_400_000 }, 'everyMs=2592000000'],
  [{ signal: 5 }, 'signal must be'],
])('an observation with %j is refused', (options, message) => {
  const elector = elect(new MemoryLock(), 'a', new MemoryBoard());
  expect(() => elector.observe(options as object)).toThrow(message);
});

test('wrong settings are refused by name', async () => {
  const lock = new MemoryLock();
  const make = (config: object) => () => new Elector({ lock, resource: 'office', ...config });
  expect(make({ ttl: 1 })).toThrow('unknown field ttl');
  expect(make({ lock: {} })).toThrow('lock must be');
  expect(make({ ttlMs: 99 })).toThrow('ttlMs=99');
  expect(make({ ttlMs: 30 * 86_400_000 })).toThrow('ttlMs=2592000000');
  expect(make({ candidate: 5 })).toThrow('candidate must be');
  expect(make({ board: {} })).toThrow('board must have');
  const campaign = elect(lock, 'a').campaign({ signal: 5 } as never);
  await expect(campaign).rejects.toThrow('signal must be');
  expect(make({ resource: '' })).toThrow('resource must be');
});
