/** How many objects a batch or a listing asks for at once. */
export const READS_AT_ONCE = 8;

/** What each key has; however often it is named, it is read once. */
export async function readEach<Found>(
  keys: readonly string[],
  read: (key: string) => Promise<Found>,
): Promise<Map<string, Found>> {
  const distinct = [...new Set(keys)];
  const found = await forEachOf(distinct, READS_AT_ONCE, async (key) => {
    return [key, await read(key)] as const;
  });
  return new Map(found);
}

/**
 * Does something for each of several items, a few at a time, and gives the results in the order of the items. After a failure
 * nothing more is begun.
 */
export async function forEachOf<In, Out>(
  items: readonly In[],
  atOnce: number,
  work: (item: In) => Promise<Out>,
): Promise<Out[]> {
  const results = new Array<Out>(items.length);
  const queue = items.entries();
  let hasFailed = false;
  const worker = async (): Promise<void> => {
    for (const [at, item] of queue) {
      if (hasFailed) return;
      try {
        results[at] = await work(item);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
  return results;
}
