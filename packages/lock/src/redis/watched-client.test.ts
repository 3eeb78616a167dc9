import { expect, test, vi } from 'vitest';
import { systemRuntime } from '../runtime/runtime.js';
import type { ClientAdapter, SpareClient } from './client.js';
import { WatchedClient } from './watched-client.js';

test('a late answer after the last lock service has closed makes no connection', () => {
  const close = vi.fn();
  const spare = vi.fn(() => ({ state: 'ready', close }) as Partial<SpareClient> as SpareClient);
  const owner: Partial<ClientAdapter> = { isClosed: false, onceConnected: () => {}, spare };
  const client = new WatchedClient(owner as ClientAdapter);
  const leave = client.use();
  client.replace(client.connection, systemRuntime);
  expect(spare).toHaveBeenCalledTimes(1);
  leave();
  expect(close).toHaveBeenCalledTimes(1);
  // Long after the last replacement.
  client.replace(client.connection, { ...systemRuntime, nowMs: () => Number.MAX_SAFE_INTEGER });
  expect(spare).toHaveBeenCalledTimes(1);
});
