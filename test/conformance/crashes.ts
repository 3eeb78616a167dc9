import { OutcomeUnknownError, StoreUnavailableError } from '@fenced/store';
import type { FencedS3, Settlement } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Staged, text } from './harness/stage.js';

const WRITERS = 4;
const CRASHES = 3;
/** Number of acknowledged writes between two crashes. */
const BETWEEN = 12;

/** Kills the server while it writes, and starts it again with its data. */
export function crashes(staged: Staged): void {
  test('after a crash of the server, all acknowledged writes are there', async () => {
    const key = staged().newKey();
    const told = { applied: new Set<string>(), not: new Set<string>() };
    let isOver = false;
    /** Called when enough was written since the last crash. */
    let written = (): void => undefined;

    /** Appends a unique name to the list in the object. */
    const append = async (store: FencedS3, name: string): Promise<void> => {
      const write = store.update(key, { token: 33 }, (current) => `${text(current) ?? ''}${name} `);
      const error = await write.then(
        () => null,
        (thrown: unknown) => thrown,
      );
      const isUnknown = error instanceof OutcomeUnknownError;
      if (error !== null && !isUnknown) expect(error).toMatchObject({ code: NOTHING_WRITTEN });
      const settlement = isUnknown ? await settled(store, error.writeId) : 'not-applied';
      if (error === null || settlement === 'applied') told.applied.add(name);
      else if (settlement === 'not-applied') told.not.add(name);
      if (error === null) written();
    };
    const writing = Array.from({ length: WRITERS }, async (_, writer) => {
      const store = staged().store({ requestTimeoutMs: 5_000, attemptsMax: 50 });
      for (let n = 0; !isOver; n++) await append(store, `${writer}-${n}`);
    });
    const all = Promise.all(writing);
    try {
      for (let crash = 0; crash < CRASHES; crash++) {
        let left = BETWEEN;
        const enough = new Promise<void>((resolve) => {
          written = () => --left === 0 && resolve();
        });
        await Promise.race([enough, all]);
        await staged().service.crash?.();
      }
    } finally {
      isOver = true;
    }
    await all;
    const names = (text(await staged().store().get(key)) ?? '').trim().split(' ');
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(CRASHES * BETWEEN);
    expect([...told.applied].filter((name) => !names.includes(name))).toEqual([]);
    expect([...told.not].filter((name) => names.includes(name))).toEqual([]);
  });
}

const NOTHING_WRITTEN: unknown = expect.stringMatching(/^(unavailable|conflict)$/);

/** Repeats a call until the server answers. */
async function settled(store: FencedS3, writeId: string): Promise<Settlement> {
  for (;;) {
    try {
      return await store.settle(writeId);
    } catch (error) {
      expect(error).toBeInstanceOf(StoreUnavailableError);
    }
  }
}
