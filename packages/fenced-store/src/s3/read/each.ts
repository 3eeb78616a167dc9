/** Number of objects that a batch or a listing reads at once. */
export const READS_AT_ONCE = 8;

/** Reads each key once, however often it is named. */
export async function readEach<Found>(
  keys: readonly string[],
  read: (key: string) => Promise<Found>,
): Promise<Map<string, Found>> {
  const distinct = [...new Set(keys)];
  return new Map(
    await forEachOf(distinct, READS_AT_ONCE, async (key) => [key, await read(key)] as const),
  );
}

/**
 * Works on each item, a few at once, and returns the results in the order of the items. After a
 * failure no other item is begun, and the signal ends those under way; then throws the first error.
 */
export async function forEachOf<In, Out>(
  items: Iterable<In> | AsyncIterable<In>,
  atOnce: number,
  work: (item: In, at: number, signal: AbortSignal) => Promise<Out>,
): Promise<Out[]> {
  const results: Out[] = [];
  const errors: unknown[] = [];
  const failure = new AbortController();
  // All workers take from one iterator. A failed worker ends it for the others.
  const queue = numbered(items);
  const worker = async (): Promise<void> => {
    try {
      for await (const [at, item] of queue) results[at] = await work(item, at, failure.signal);
    } catch (error) {
      errors.push(error);
      failure.abort(error);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  if (errors.length > 0) throw errors[0];
  return results;
}

async function* numbered<In>(
  items: Iterable<In> | AsyncIterable<In>,
): AsyncGenerator<readonly [number, In]> {
  let at = 0;
  for await (const item of items) yield [at++, item];
}
