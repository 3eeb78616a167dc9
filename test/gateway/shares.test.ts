import { connect, type Socket } from 'node:net';
import { createMetrics } from '@fenced/gateway/metrics';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { GatewayWorld, problemOf, until } from './harness/world.js';

let world: GatewayWorld;

beforeAll(async () => {
  world = await GatewayWorld.start();
});

afterAll(() => world?.[Symbol.asyncDispose]());

/** Accepts every API key, with all rights. */
const credentials = {
  authenticate: async (header: string | undefined) => ({
    name: header?.replace('Bearer ', '') ?? 'nobody',
    may: () => true,
  }),
};

function ask(url: string, key: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' };
  return fetch(url + path, { ...init, headers: { ...headers, ...init.headers } });
}

function lease(url: string, key: string, path: string, waitMs: number, signal?: AbortSignal) {
  const body = JSON.stringify({ ttlMs: 30_000, waitMs });
  return ask(url, key, path, { method: 'POST', body, ...(signal && { signal }) });
}

/** Starts an upload under that key and sends none of its body. */
function open(
  url: string,
  key: string,
  path: string,
  length = 1,
): { socket: Socket; text: string } {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const upload = { socket, text: '' };
  socket.on('error', () => undefined).setEncoding('latin1');
  socket.on('data', (piece: string) => {
    upload.text += piece;
  });
  const head = [
    `PUT ${path} HTTP/1.1`,
    'Host: localhost',
    'Fencing-Token: 1',
    `Authorization: Bearer ${key}`,
  ];
  const more = [`Content-Length: ${length}`, 'Expect: 100-continue'];
  socket.write(`${[...head, ...more].join('\r\n')}\r\n\r\n`);
  return upload;
}

async function gauges(url: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const found = text.matchAll(/^fenced_gateway_(limit|in_use)\{limit="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries(
    [...found].map(([, kind, name, value]) => [`${name} ${kind}`, Number(value)]),
  );
}

test('one key that waits for leases leaves room for others, and waits do not count as work', async () => {
  const metrics = createMetrics();
  const limits = { requestsMax: 4, waitsMax: 12 };
  await using front = await world.open({ credentials, limits, metrics });
  expect((await lease(front.url, 'flood', '/v1/leases/one', 0)).status).toBe(201);
  const gone = new AbortController();
  const answers: Response[] = [];
  const waiting = Array.from({ length: 20 }, () =>
    lease(front.url, 'flood', '/v1/leases/one', 25_000, gone.signal).then(
      (answer) => answers.push(answer),
      () => undefined,
    ),
  );
  // Each key may have only a part of the places. The gateway refuses the other requests.
  await until(async () => (await gauges(front.url))['waits in_use'] === 20 - answers.length);
  for (const answer of answers)
    expect(await problemOf(answer)).toMatchObject({
      type: 'urn:fenced:problem:too-many-requests',
      retryAfterMs: expect.any(Number),
    });
  const isFull = async (): Promise<boolean> => {
    const answer = await lease(
      front.url,
      'flood',
      '/v1/leases/one',
      25_000,
      AbortSignal.any([gone.signal, AbortSignal.timeout(300)]),
    ).catch(() => null);
    return (
      answer !== null &&
      (await problemOf(answer)).detail === 'you use 6 waits: the rest is for other callers'
    );
  };
  await until(isFull);
  expect(await gauges(front.url)).toMatchObject({
    'requests limit': 4,
    'requests in_use': 0,
    'waits limit': 12,
    'waits in_use': 6,
  });
  const put = { method: 'PUT', body: '1', headers: { 'Fencing-Token': '1' } };
  for (const key of ['other', 'flood'])
    expect((await ask(front.url, key, `/v1/records/shares/${key}`, put)).status).toBe(200);
  expect((await lease(front.url, 'other', '/v1/leases/two', 10_000)).status).toBe(201);
  gone.abort();
  await Promise.all(waiting);
  await until(async () => (await gauges(front.url))['waits in_use'] === 0);
});

test('one key that opens uploads leaves room for others', async () => {
  const metrics = createMetrics();
  await using front = await world.open({ credentials, limits: { uploadsMax: 8 }, metrics });
  const uploads = Array.from({ length: 10 }, (_, at) =>
    open(front.url, 'flood', `/v1/objects/up-${at}`),
  );
  await until(() => uploads.every(({ text }) => text !== ''));
  const begun = uploads.filter(({ text }) => text.includes(' 100 Continue'));
  expect(begun).toHaveLength(4);
  for (const { text } of uploads.filter((one) => !begun.includes(one)))
    expect(text).toMatch(/^HTTP\/1\.1 429 [\s\S]*urn:fenced:problem:too-many-requests/);
  expect(await gauges(front.url)).toMatchObject({ 'uploads limit': 8, 'uploads in_use': 4 });
  const put = { method: 'PUT', body: '1', headers: { 'Fencing-Token': '1' } };
  expect((await ask(front.url, 'other', '/v1/objects/of-another', put)).status).toBe(200);
  // Two keys that open too many uploads get a third of the places each. The rest is for other keys.
  const second = Array.from({ length: 10 }, (_, at) =>
    open(front.url, 'second', `/v1/objects/two-${at}`),
  );
  await until(() => second.every(({ text }) => text !== ''));
  expect(second.filter(({ text }) => text.includes(' 100 Continue'))).toHaveLength(2);
  expect((await ask(front.url, 'other', '/v1/objects/of-another', put)).status).toBe(200);
  for (const { socket } of begun) socket.write('1');
  await until(() => begun.every(({ text }) => text.includes(' 200 OK')));
  for (const { socket } of [...uploads, ...second]) socket.destroy();
  await until(async () => (await gauges(front.url))['uploads in_use'] === 0);
});

test('an upload below the minimum rate ends with 408 at any length, and one above it does not', async () => {
  const limits = { idleTimeoutMs: 1_000, bytesPerSecondMin: 1_000_000 };
  await using front = await world.open({ credentials, limits });
  await front.objects.probe();
  const slow = open(front.url, 'slow', '/v1/objects/slow', 2 ** 30);
  await until(() => slow.text.includes(' 100 Continue'));
  // Sends about 160 KiB a second, which is below the minimum rate of the gateway.
  const drip = setInterval(() => slow.socket.write(Buffer.alloc(16_384)), 100);
  await until(() => slow.text.includes('HTTP/1.1 408 '));
  clearInterval(drip);
  slow.socket.destroy();
  expect(slow.text).toContain('urn:fenced:problem:request-timeout');
  const body = Buffer.alloc(8 * 2 ** 20, 1);
  const fast = { method: 'PUT', body, headers: { 'Fencing-Token': '1' } };
  expect((await ask(front.url, 'fast', '/v1/objects/fast', fast)).status).toBe(200);
});

/** Connects from that address of this machine. @returns null if it was closed at once */
async function connection(url: string, localAddress: string): Promise<Socket | null> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), localAddress });
  socket.on('error', () => undefined);
  socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const isOpen = await new Promise<boolean>((resolve) => {
    socket.once('data', () => resolve(true)).once('close', () => resolve(false));
  });
  return isOpen ? socket : null;
}

async function connections(url: string, localAddress: string, count: number): Promise<Socket[]> {
  const open: Socket[] = [];
  for (let at = 0; at < count; at++) {
    const socket = await connection(url, localAddress);
    if (socket !== null) open.push(socket);
  }
  return open;
}

test('one address that opens connections leaves some for others', async () => {
  const metrics = createMetrics();
  const refused: string[] = [];
  const onRefused = (address: string): void => void refused.push(address);
  const server = { metrics, onRefused };
  await using front = await world.open({
    credentials,
    metrics,
    server,
    limits: { connectionsMax: 8 },
  });
  const flood = await connections(front.url, '127.0.0.2', 10);
  expect(flood).toHaveLength(4);
  expect(refused).toEqual(Array(6).fill('127.0.0.2'));
  // Four of the flood, and the connection that reads the metrics.
  expect(await gauges(front.url)).toMatchObject({
    'connections limit': 8,
    'connections in_use': 5,
  });
  const second = await connections(front.url, '127.0.0.3', 10);
  expect(second).toHaveLength(2);
  const newcomer = await connections(front.url, '127.0.0.4', 1);
  expect(newcomer).toHaveLength(1);
  for (const socket of [...flood, ...second, ...newcomer]) socket.destroy();
  await until(async () => (await gauges(front.url))['connections in_use'] === 1);
  const again = await connections(front.url, '127.0.0.2', 1);
  expect(again).toHaveLength(1);
  for (const socket of again) socket.destroy();
});

test('an address has its configured connections, and a trusted proxy all of them', async () => {
  const limits = { connectionsMax: 8, connectionsPerAddressMax: 6 };
  await using front = await world.open({ credentials, limits, trustedProxies: ['127.0.0.2/31'] });
  const direct = await connections(front.url, '127.0.0.4', 8);
  expect(direct).toHaveLength(6);
  for (const socket of direct) socket.destroy();
  await using behind = await world.open({ credentials, limits, trustedProxies: ['127.0.0.2/31'] });
  const proxy = await connections(behind.url, '127.0.0.2', 10);
  expect(proxy).toHaveLength(8);
  for (const socket of proxy) socket.destroy();
});

test('while all work of one key stands still in the database, another key is served', async () => {
  const metrics = createMetrics();
  await using front = await world.open({ credentials, metrics });
  const path = '/v1/records/stuck/1';
  const put = () =>
    ask(front.url, 'flood', path, { method: 'PUT', body: '1', headers: { 'Fencing-Token': '1' } });
  expect((await put()).status).toBe(200);
  const admin = new pg.Client({ connectionString: world.postgres.url });
  await admin.connect();
  try {
    await admin.query("BEGIN; SELECT FROM fenced.record WHERE collection = 'stuck' FOR UPDATE");
    let ended = 0;
    const stuck = Array.from({ length: 30 }, () => put().finally(() => ended++));
    // One key has all connections, or its whole share of them.
    const busy = () => front.pool.totalCount - front.pool.idleCount;
    await until(async () => {
      const { 'requests in_use': running, 'database in_use': places = 20 } = await gauges(
        front.url,
      );
      return running === 30 && busy() === places && places >= 10;
    });
    const read = await ask(front.url, 'other', '/v1/records/free/1');
    expect([read.status, ended]).toEqual([404, 0]);
    await admin.query('COMMIT');
    expect(new Set((await Promise.all(stuck)).map(({ status }) => status))).toEqual(new Set([200]));
  } finally {
    await admin.end();
  }
});
