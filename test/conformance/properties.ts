import type { Objects } from '@fenced/client';
import { FencedStoreError, StaleTokenError } from '@fenced/store';
import fc from 'fast-check';
import { beforeAll, expect, test } from 'vitest';
import { type Staged, shortId, text } from './harness/stage.js';

/** Number of runs of each property. A nightly run has more. */
const RUNS = Number(process.env.FENCED_RUNS ?? 12);

/** Few bodies, so that equal bytes are frequent. */
const bodies = fc.constantFrom('A', 'B', '');
const kinds = fc.constantFrom('put', 'update', 'claim', 'delete', 'claimAndGet', 'stream');
type Step = readonly [holder: number, kind: string, token: bigint, body: string];
const steps = fc.array(
  fc.tuple(fc.nat(2), kinds, fc.bigInt({ min: 1n, max: 5n }), bodies) as fc.Arbitrary<Step>,
  { minLength: 1, maxLength: 10 },
);

/** Properties that hold however the requests of several holders interleave. */
export function properties(staged: Staged<Objects>): void {
  let holders: Objects[];
  beforeAll(() => {
    holders = [staged().store(), staged().store(), staged().store({ attemptsMax: 100 })];
  });

  async function take([holder, kind, token, body]: Step, key: string) {
    const store = holders[holder] ?? expect.fail();
    switch (kind) {
      case 'put':
        return store.put(key, body, { token });
      case 'update':
        return store.update(key, { token }, (current) => `${text(current) ?? ''}${body}`);
      case 'delete':
        return store.delete(key, { token });
      case 'claimAndGet':
        return store.claimAndGet(key, { token });
      case 'stream':
        return store.put(key, new Blob([body]).stream() as AsyncIterable<Uint8Array>, { token });
      default:
        return store.claim(key, { token });
    }
  }

  test('calls one after the other have the outcomes of a model of the token rule', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (script) => {
        const key = staged().newKey();
        let highest = 0n;
        let value: string | null = null;
        for (const step of script) {
          const [, kind, token, body] = step;
          const before = await staged().history(key);
          const outcome = await take(step, key).catch((error: unknown) => error);
          if (token < highest) {
            expect(outcome).toBeInstanceOf(StaleTokenError);
            expect(outcome).toMatchObject({ presented: token, highest });
            expect(await staged().history(key)).toEqual(before);
            continue;
          }
          expect(outcome).not.toBeInstanceOf(Error);
          highest = token;
          if (kind === 'put' || kind === 'stream') value = body;
          if (kind === 'update') value = `${value ?? ''}${body}`;
          if (kind === 'delete') value = null;
          expect(text(await holders[0]?.get(key))).toBe(value);
          expect(await holders[1]?.highest(key)).toBe(highest);
        }
      }),
      { numRuns: RUNS },
    );
  });

  test('concurrent calls: accepted tokens never go down, and each outcome is true', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { minLength: 1, maxLength: 2 }), async (batches) => {
        const key = staged().newKey();
        const accepted = new Map<string, bigint>();
        let taken = 0;
        const low = { token: 0n };
        for (const batch of batches) {
          const results = await Promise.allSettled(batch.map((step) => take(step, key)));
          for (const result of results) {
            if (result.status === 'rejected')
              expect(result.reason).toBeInstanceOf(FencedStoreError);
            else {
              taken++;
              if (result.value && 'writeId' in result.value)
                accepted.set(shortId(result.value.writeId), result.value.token);
            }
          }
          const highest = (await holders[0]?.highest(key)) ?? 0n;
          expect(highest).toBeGreaterThanOrEqual(low.token);
          low.token = highest;
        }
        const chain = await staged().history(key);
        const tokens = chain.flatMap((id) => accepted.get(id) ?? []);
        expect(tokens).toEqual(tokens.toSorted((a, b) => Number(b - a)));
        // If the history is not cut off, it has every acknowledged write.
        if (chain.length <= 40) for (const id of accepted.keys()) expect(chain).toContain(id);
        const all = batches.flat().map(([, , token]) => token);
        const top = all.reduce((most, token) => (token > most ? token : most));
        expect(await holders[1]?.highest(key)).toBe(top);
        expect(taken).toBeGreaterThan(0);
      }),
      { numRuns: RUNS },
    );
  });

  test('increments of several workers add up, with deletes and equal bytes between them', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 2, max: 5 }),
        fc.integer({ min: 1, max: 4 }),
        async (workers, increments) => {
          const key = staged().newKey();
          await Promise.all(
            Array.from({ length: workers }, async () => {
              const store = staged().store({ attemptsMax: 500 });
              for (let i = 0; i < increments; i++) {
                await store.update(key, { token: 7 }, (current) => `${Number(text(current)) + 1}`);
                await store.claim(key, { token: 7 });
              }
            }),
          );
          expect(text(await staged().store().get(key))).toBe(`${workers * increments}`);
        },
      ),
      { numRuns: Math.ceil(RUNS / 3) },
    );
  });

  test('equal bytes and deletes never let an old holder in (ABA)', async () => {
    const [late, next] = [holders[0] ?? expect.fail(), holders[1] ?? expect.fail()];
    for (let round = 0; round < 5; round++) {
      const key = staged().newKey();
      const versions = [(await late.put(key, 'A', { token: 33 })).version];
      const write = late.update(key, { token: 33 }, async () => {
        versions.push((await next.put(key, 'B', { token: 34 })).version);
        versions.push((await next.delete(key, { token: 34 })).version);
        versions.push((await next.put(key, 'A', { token: 35 })).version);
        return 'late';
      });
      await expect(write).rejects.toMatchObject({ code: 'stale-token', highest: 35n });
      expect(new Set(versions).size).toBe(4);
      expect(await next.get(key)).toMatchObject({ token: 35n, version: versions[3] });
    }
  });
}
