import { FencedGateway, type Records } from '@fenced/client';
import { createGateway, serveGateway } from '@fenced/gateway';
import { Redlock } from '@fenced/lock';
import { ConflictError, OutcomeUnknownError, StaleTokenError } from '@fenced/store';
import { FencedPostgres, type Json } from '@fenced/store/postgres';
import { MemoryRecords } from '@fenced/store/testing';
import { type RedisService, startRedis } from '@fenced/testbed';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, test } from 'vitest';
import {
  asNewRole,
  closeAfterTest,
  connect,
  holdCommits,
  openLedger,
  rejectionOf,
  testOfPg,
  throughProxy,
} from './harness/postgres-support.js';

async function openRecords() {
  const ledger = await openLedger();
  return { ...ledger, records: ledger.store.records('invoices') };
}

const anyId = fc.string({ minLength: 1 }).filter((id) => !id.includes('\0') && id.isWellFormed());

/** The ways in which a program can use records. All have the same methods. */
const ways = [
  {
    way: 'directly',
    ids: anyId,
    open: async () => {
      const { records, store } = await openRecords();
      return { records: records as Records, others: store.records('others') as Records };
    },
  },
  {
    way: 'in memory',
    ids: anyId,
    open: async () => {
      const memory = new MemoryRecords();
      return { records: memory.records('invoices'), others: memory.records('others') };
    },
  },
  {
    way: 'through a gateway',
    // A path of a URL cannot have other ids.
    ids: anyId.filter((id) => id === id.normalize('NFC') && !/^\.\.?$|[/\\\p{Cc}]/u.test(id)),
    open: async () => {
      const { store } = await openRecords();
      const gateway = await gatewayBefore(store);
      return { records: gateway.records('invoices'), others: gateway.records('others') };
    },
  },
];

async function gatewayBefore(records: FencedPostgres): Promise<FencedGateway> {
  const node = new Redis((await redis()).nodes[0]?.url ?? '');
  closeAfterTest(async () => node.disconnect());
  const app = createGateway({ lock: new Redlock({ nodes: [node] }), records });
  const server = await serveGateway(app, { port: 0 });
  closeAfterTest(() => server.drain());
  return new FencedGateway({ url: server.url });
}

let server: Promise<RedisService> | undefined;
function redis(): Promise<RedisService> {
  server ??= startRedis(1);
  return server;
}
afterAll(async () => (await server)?.stop());

const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);

/**
 * False if the text has a whole number with too many digits for JavaScript: a gateway refuses it.
 */
function hasExactNumbers(text: string): boolean {
  return !/(?<![\d.e+-])-?\d{16,}(?![\d.e])/.test(text.replace(/"(?:[^"\\]|\\.)*"/g, ''));
}

describe.each(ways)('records, $way', ({ open, ids }) => {
  test('a document is written, read, updated and deleted, and keeps its token and version', async () => {
    const { records } = await open();
    expect(await records.get('42')).toBeNull();
    expect(await records.highest('42')).toBe(0n);
    const written = await records.put('42', { total: 1 }, { token: 33 });
    expect(written).toMatchObject({ token: 33n, version: `1-${written.writeId}` });
    expect(await records.get('42')).toEqual({ ...written, body: { total: 1 } });
    const updated = await records.update('42', { token: 34 }, (current) => {
      expect(current?.body).toEqual({ total: 1 });
      return { total: 2 };
    });
    expect(updated.version).toBe(`2-${updated.writeId}`);
    const deleted = await records.delete('42', { token: 34 });
    expect(deleted.version).toBe(`3-${deleted.writeId}`);
    expect(await records.get('42')).toBeNull();
    expect(await records.highest('42')).toBe(34n);
    await expect(records.put('42', 'late', { token: 33 })).rejects.toBeInstanceOf(StaleTokenError);
    await records.update('42', { token: 34 }, (current) => [current?.body ?? null]);
    expect(await records.get('42')).toMatchObject({
      body: [null],
      version: expect.stringMatching(/^4-/),
    });
  });

  test('a lower token is refused everywhere, and changes nothing', async () => {
    const { records, others } = await open();
    await records.put('42', 1, { token: 34 });
    const token = { token: 33 };
    for (const call of [
      () => records.put('42', 2, token),
      () => records.update('42', token, () => 2),
      () => records.delete('42', token),
      () => records.claim('42', token),
      () => records.claimAndGet('42', token),
    ]) {
      const error = await rejectionOf(call());
      expect(error).toBeInstanceOf(StaleTokenError);
      expect(error).toMatchObject({ presented: 33n, highest: 34n, resource: 'invoices/42' });
    }
    expect(await records.get('42')).toMatchObject({
      body: 1,
      version: expect.stringMatching(/^1-/),
    });
    expect(await others.highest('42')).toBe(0n);
  });

  test('a write may expect a version, or none', async () => {
    const { records } = await open();
    const token = 33;
    const put = (expected: unknown) =>
      records.put('42', 1, { token, expected: expected as string | null });
    const { version } = await put(null);
    const { version: next } = await put(version);
    // The words of the SQL, numbers alone, and another write's id are no version of the document.
    const others = ['none', '0-', '2', next.replace(/^2/, '3'), `2-${version.slice(2)}`];
    for (const expected of [null, version, ...others])
      expect(await rejectionOf(put(expected)), String(expected)).toMatchObject({
        code: 'version-mismatch',
      });
    for (const expected of [2n, 2])
      expect(await rejectionOf(put(expected))).toMatchObject({ code: 'invalid-argument' });
    await records.delete('42', { token, expected: next });
    expect(await rejectionOf(put(next))).toMatchObject({ code: 'version-mismatch' });
    expect((await put(null)).version).toMatch(/^4-/);
  });

  test('a claim, and a claim that reads, keep earlier holders out before anything is written', async () => {
    const { records } = await open();
    await records.claim('new', { token: 34 });
    expect(await records.get('new')).toBeNull();
    await expect(records.put('new', 1, { token: 33 })).rejects.toBeInstanceOf(StaleTokenError);
    await records.put('new', 1, { token: 34 });
    expect(await records.claimAndGet('new', { token: 35 })).toMatchObject({
      body: 1,
      version: expect.stringMatching(/^1-/),
    });
    await expect(records.put('new', 2, { token: 34 })).rejects.toBeInstanceOf(StaleTokenError);
  });

  test('many updates at once, with different tokens, lose none', async () => {
    const { records } = await open();
    const outcomes = await Promise.allSettled(
      Array.from({ length: 40 }, (_, i) =>
        records.update('42', { token: 1 + (i % 3), attemptsMax: 200 }, (current) => [
          ...((current?.body as Json[]) ?? []),
          i,
        ]),
      ),
    );
    const acknowledged = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(StaleTokenError);
    }
    const { body, version } = (await records.get('42')) ?? {};
    expect((body as number[]).toSorted((a, b) => a - b)).toEqual(acknowledged);
    expect(Number.parseInt(version ?? '', 10)).toBe(acknowledged.length);
    expect(acknowledged.length).toBeGreaterThanOrEqual(13);
  });

  test('an update is a conflict, and writes nothing, if another write comes between in every attempt', async () => {
    const { records } = await open();
    let runs = 0;
    const run = records.update('42', { token: 1, attemptsMax: 3 }, async () => {
      await records.put('42', { by: 'others', run: ++runs }, { token: 1 });
      return 'mine';
    });
    expect(await rejectionOf(run)).toBeInstanceOf(ConflictError);
    expect(await records.get('42')).toMatchObject({ body: { by: 'others', run: 3 } });
  });

  test(`JSON comes back as it was (FENCED_SEED=${seed})`, async () => {
    const { records } = await open();
    // jsonb has neither \u0000 nor halves of surrogate pairs, and one zero.
    const isStorable = (text: string) =>
      text.isWellFormed() && !text.includes('\\u0000') && hasExactNumbers(text);
    const property = fc.asyncProperty(fc.jsonValue(), ids, async (value, id) => {
      const text = JSON.stringify(value);
      fc.pre(isStorable(text));
      await records.put(id, JSON.parse(text), { token: 1 });
      expect((await records.get(id))?.body).toEqual(JSON.parse(text));
    });
    await fc.assert(property, { seed, numRuns: 200 });
  });

  test.each([
    ['undefined', undefined, 'invalid-argument'],
    ['a bigint', 1n, 'invalid-argument'],
    ['a function', () => 1, 'invalid-argument'],
    ['a NUL', 'a\0b', 'invalid-argument'],
  ])('%s cannot be a document', async (_, body, code) => {
    const { records } = await open();
    await expect(records.put('42', body as Json, { token: 1 })).rejects.toMatchObject({ code });
    expect(await records.highest('42')).toBe(0n);
  });
});

test('bad names and tokens are refused before anything is sent', async () => {
  const store = new FencedPostgres({ pool: connect('postgres://127.0.0.1:1/absent') });
  expect(() => store.records('')).toThrow('collection must not be empty');
  const records = store.records('c');
  for (const call of [
    records.put('', 1, { token: 1 }),
    records.put('x', 1, { token: 0 }),
    records.put('x', 1, undefined as never),
    records.update('x', { token: 1 }, undefined as never),
    records.update('x', { token: 1, attemptsMax: 0 }, () => 1),
    records.get('a\0b'),
    records.highest(1 as never),
  ]) {
    await expect(call).rejects.toMatchObject({ code: expect.stringMatching(/^invalid-/) });
  }
});

test('a role that may present tokens writes documents, but not the table', async () => {
  const { url, pool } = await openRecords();
  const role = await asNewRole(url);
  const theirs = connect(role.href);
  const records = new FencedPostgres({ pool: theirs }).records('invoices');
  await expect(records.put('42', 1, { token: 33 })).rejects.toMatchObject({ code: 'store-setup' });
  await pool.query(`SELECT fenced.allow('${role.username}')`);
  await records.put('42', 1, { token: 33 });
  for (const statement of ['UPDATE fenced.record SET token = 1', 'DELETE FROM fenced.record'])
    await expect(theirs.query(statement)).rejects.toMatchObject({ code: '42501' });
});

test('a version above 2^31 is written, expected and returned', async () => {
  const { pool, records } = await openRecords();
  const { writeId } = await records.put('42', 1, { token: 33 });
  await pool.query('UPDATE fenced.record SET version = 5000000000');
  const expected = `5000000000-${writeId}`;
  const { version } = await records.put('42', 2, { token: 33, expected });
  expect(version).toMatch(/^5000000001-/);
  expect((await records.put('42', 3, { token: 33 })).version).toMatch(/^5000000002-/);
});

test('under a default of SERIALIZABLE, conflicting writes are tried again', async () => {
  const { url, records } = await openRecords();
  const options = '-c default_transaction_isolation=serializable';
  const strict = new FencedPostgres({ pool: connect(url.href, { max: 8, options }) });
  const writes = Array.from({ length: 8 }, (_, i) =>
    strict.records('invoices').put('42', i, { token: 1 }),
  );
  const written = await Promise.all(writes);
  expect(new Set(written.map(({ version }) => version)).size).toBe(8);
  expect((await records.get('42'))?.version).toMatch(/^8-/);
});

describe('a reply that is lost', () => {
  test('is replaced by reading back', async () => {
    const ledger = await openRecords();
    const { proxy, store } = await throughProxy(ledger);
    const pass = await holdCommits(ledger, 'fenced.record');
    const run = store.records('invoices').put('42', 1, { token: 33 });
    await ledger.untilWaiting(1);
    proxy.swallow('toClient');
    await pass();
    await proxy.untilSwallowed('toClient');
    proxy.heal();
    proxy.cut();
    const { writeId, version } = await run;
    expect(await ledger.records.get('42')).toMatchObject({ body: 1, writeId, version });
  });

  testOfPg('leaves the outcome unknown if another write hides it', async () => {
    const ledger = await openRecords();
    const { proxy, store } = await throughProxy(ledger);
    const far = store.records('invoices');
    await far.get('42');
    proxy.swallow('toClient');
    const run = rejectionOf(far.put('42', 1, { token: 33 }));
    await proxy.untilSwallowed('toClient');
    await ledger.records.put('42', 2, { token: 33 });
    proxy.heal();
    proxy.cut();
    expect(await run).toBeInstanceOf(OutcomeUnknownError);
  });
});

describe('claimAndGet', () => {
  testOfPg(
    'gives what its own token protects, also if another holder writes meanwhile',
    async () => {
      const { records, pool } = await openRecords();
      await records.put('a', 'of 34', { token: 34 });
      let connections = 0;
      // If the call used two connections, the next holder would write before the second one.
      const between = {
        connect: async () => {
          if (connections++ === 1) await records.put('a', 'of 35', { token: 35 });
          return pool.connect();
        },
      };
      const earlier = new FencedPostgres({ pool: between }).records('invoices');
      expect(await earlier.claimAndGet('a', { token: 34 })).toMatchObject({
        body: 'of 34',
        token: 34n,
      });
      await records.put('a', 'of 35', { token: 35 });
      await expect(earlier.claimAndGet('a', { token: 34 })).rejects.toBeInstanceOf(StaleTokenError);
    },
  );

  test('returns its own token, or is stale, among many holders', async () => {
    const { records } = await openRecords();
    let highest = 0;
    const outcomes = { read: 0, stale: 0 };
    const holder = async () => {
      for (let i = 0; i < 40; i++) {
        highest += 1;
        const token = highest;
        try {
          const before = await records.claimAndGet('a', { token });
          if (before) expect(before.token).toBe(BigInt(token));
          await records.put('a', { token }, { token });
          const after = await records.claimAndGet('a', { token });
          expect(after).toMatchObject({ body: { token }, token: BigInt(token) });
          outcomes.read += 1;
        } catch (error) {
          if (!(error instanceof StaleTokenError)) throw error;
          outcomes.stale += 1;
        }
      }
    };
    await Promise.all([holder(), holder(), holder(), holder()]);
    expect(outcomes.read).toBeGreaterThan(0);
    expect(outcomes.stale).toBeGreaterThan(0);
  });

  test('takes a token, and a plain read refuses one', async () => {
    const { records } = await openRecords();
    await records.put('a', 1, { token: 33 });
    const options = { token: 34 } as object;
    await expect(records.get('a', options)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining('call claimAndGet'),
    });
    expect(await records.highest('a')).toBe(33n);
  });

  testOfPg.each(['claim', 'claimAndGet'] as const)(
    'has an unknown outcome if its reply is lost: %s',
    async (call) => {
      const ledger = await openRecords();
      const { proxy, store } = await throughProxy(ledger, { holdMs: 500 });
      const far = store.records('invoices');
      await far.put('a', 1, { token: 33 });
      proxy.hold('toClient');
      const lost = far[call]('a', { token: 34 });
      await expect(lost).rejects.toMatchObject({ code: 'outcome-unknown' });
      // The server has carried out the claim. Only the reply was lost.
      expect(await ledger.records.highest('a')).toBe(34n);
    },
  );
});

describe('a document that JSON or jsonb cannot keep', () => {
  const nested = (depth: number): Json => {
    let value: Json = 1;
    for (let i = 0; i < depth; i++) value = [value];
    return value;
  };

  test.each<[string, unknown]>([
    ['NaN', { total: Number.NaN }],
    ['Infinity', [1, Number.POSITIVE_INFINITY]],
    ['-Infinity', Number.NEGATIVE_INFINITY],
    ['NaN in an object', { total: new Number(Number.NaN) }],
    ['a nesting that overflows the stack', nested(100_000)],
    ['a BigInt', { total: 1n }],
  ])('is refused: %s', async (_, body) => {
    const { records } = await openRecords();
    await records.put('1', 'before', { token: 1 });
    const refusal = { code: 'invalid-argument', message: expect.stringMatching(/JSON/) };
    await expect(records.put('1', body as Json, { token: 1 })).rejects.toMatchObject(refusal);
    const update = records.update('1', { token: 1 }, () => body as Json);
    await expect(update).rejects.toMatchObject(refusal);
    expect(await records.get('1')).toMatchObject({ body: 'before' });
  });

  test('is refused by the database if only its stack is too small', async () => {
    const { pool, url } = await openRecords();
    await pool.query(`ALTER DATABASE ${url.pathname.slice(1)} SET max_stack_depth = '100kB'`);
    const records = new FencedPostgres({ pool: connect(url.href) }).records('invoices');
    await expect(records.put('1', nested(3_000), { token: 1 })).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('stack depth limit exceeded'),
    });
    expect(await records.get('1')).toBeNull();
  });

  test('loses the order of its keys, and nothing else', async () => {
    const { records } = await openRecords();
    const body = { long: 1, b: [{ z: null, a: 'x' }], a: 1e308, tiny: 5e-324 };
    await records.put('1', body, { token: 1 });
    const current = await records.get('1');
    expect(current?.body).toEqual(body);
    expect(Object.keys(current?.body as object)).toEqual(['a', 'b', 'long', 'tiny']);
  });
});
