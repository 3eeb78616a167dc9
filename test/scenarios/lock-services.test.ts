import {
  playCell,
  type Store,
  startLockServers,
  startStore,
  stories,
  variantsOf,
} from '@fenced/demo';
import { afterAll, beforeAll, expect, test } from 'vitest';

// `npm run demo -- --lock etcd` plays the stories with every protection.
const services = new AsyncDisposableStack();
let store: Store;
beforeAll(async () => {
  store = services.use(await startStore('postgres'));
});
afterAll(() => services.disposeAsync());

const variants = stories
  .filter(({ anyLockService }) => anyLockService)
  .flatMap(variantsOf)
  .filter(({ story, protection }) => protection === (story.number === 3 ? 'claim' : 'token'));

test.each(['postgres', 'etcd', 's3', 'zookeeper'] as const)(
  'stories 1 to 3 have the same verdicts with the locks of %s',
  async (kind) => {
    await using group = await startLockServers(kind);
    const cells = await Promise.all(
      variants.map((variant) => playCell(variant, store, group.servers)),
    );
    expect(cells.map(({ story }) => story)).toEqual([1, 2, 3]);
    for (const cell of cells) {
      expect(cell, JSON.stringify(cell.history, null, 1)).toMatchObject({ verdict: cell.pinned });
      const [first = 0n, second = 0n] = cell.tokens.map(BigInt);
      expect(second).toBeGreaterThan(first);
    }
  },
  60_000,
);
