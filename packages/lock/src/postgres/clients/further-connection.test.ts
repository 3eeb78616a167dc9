import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { systemRuntime } from '../../runtime/runtime.js';
import { FurtherConnection } from './further-connection.js';

class Client extends EventEmitter {
  hangs = false;
  isEnded = false;
  async connect(): Promise<void> {}
  query(): Promise<{ readonly rows: unknown[] }> {
    return this.hangs ? once(this, 'end') : Promise.resolve({ rows: [] });
  }
  /** Its event comes later, as over a network. */
  async end(): Promise<void> {
    this.isEnded = true;
    setTimeout(() => this.emit('end'), 500);
  }
}

const once = (client: Client, event: string): Promise<never> =>
  new Promise((_, reject) => client.once(event, () => reject(new Error('terminated'))));

function open() {
  const clients: Client[] = [];
  const make = (): Client => {
    const client = new Client();
    clients.push(client);
    return client;
  };
  return { clients, connection: new FurtherConnection(make, systemRuntime) };
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

test('the end of an earlier connection leaves a later one known, which is closed when it is idle', async () => {
  const { clients, connection } = open();
  await connection.query('SELECT 1', []);
  await vi.advanceTimersByTimeAsync(1_000);
  await connection.query('SELECT 1', []);
  // The first connection ends now.
  await vi.advanceTimersByTimeAsync(500);
  await connection.query('SELECT 1', []);
  expect(clients).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(clients.map(({ isEnded }) => isEnded)).toEqual([true, true]);
});

test('statements do not wait behind one without an answer', async () => {
  const { clients, connection } = open();
  await connection.query('SELECT 1', []);
  for (const client of clients) client.hangs = true;
  const hanging = expect(connection.query('SELECT 1', [])).rejects.toThrow('terminated');
  await vi.advanceTimersByTimeAsync(2_000);
  await connection.query('SELECT 1', []);
  await vi.advanceTimersByTimeAsync(1_500);
  await hanging;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(clients.map(({ isEnded }) => isEnded)).toEqual([true, true]);
});
