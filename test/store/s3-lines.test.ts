import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { S3Client } from '@aws-sdk/client-s3';
import { OutcomeUnknownError, StoreUnavailableError } from '@fenced/store';
import { FencedS3, type Runtime } from '@fenced/store/s3';
import { expect, test } from 'vitest';
import { type Answer, inMemory, ScriptedServer } from './harness/s3-servers.js';

const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
const clientOf = (endpoint: string): S3Client =>
  new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true });
const MIB = 2 ** 20;
const SLOW_DOWN: Answer = { status: 503, body: '<Error><Code>SlowDown</Code></Error>' };

/**
 * A server that throttles until its clients have waited for `throttledMs`, by a simulated clock.
 */
async function throttlingServer(throttledMs: number) {
  let waitedMs = 0;
  let isThrottling = false;
  const answer = inMemory({});
  const server = await ScriptedServer.start((asked) =>
    isThrottling && waitedMs < throttledMs ? SLOW_DOWN : answer(asked),
  );
  const runtime: Runtime = {
    random: Math.random,
    wallClockMs: Date.now,
    nowMs: () => performance.now(),
    writeId: () => randomBytes(16).toString('hex'),
    sleep: async (durationMs) => {
      waitedMs += durationMs;
    },
  };
  const store = new FencedS3({ client: clientOf(server.endpoint), bucket: 'bucket' }, runtime);
  await store.put('k', '1', { token: 1 });
  return {
    server,
    store,
    throttle: () => {
      waitedMs = 0;
      isThrottling = true;
    },
    waitedMs: () => waitedMs,
  };
}

test('one second of SlowDown delays calls, and no outcome is unknown', async () => {
  const { server, store, throttle, waitedMs } = await throttlingServer(1_000);
  await using _ = server;
  for (let i = 0; i < 20; i++) {
    throttle();
    await store.put('k', `${i}`, { token: 1 });
    throttle();
    await store.update('k', { token: 1 }, (current) => `${current?.body}x`);
    throttle();
    expect(await store.get('k')).toMatchObject({ token: 1n });
    expect(waitedMs()).toBeGreaterThanOrEqual(1_000);
  }
});

test('a call gives up after some seconds if the server still throttles', async () => {
  const { server, store, throttle, waitedMs } = await throttlingServer(3_600_000);
  await using _ = server;
  throttle();
  await expect(store.put('k', '2', { token: 1 })).rejects.toThrow(OutcomeUnknownError);
  expect(waitedMs()).toBeGreaterThan(10_000);
  expect(waitedMs()).toBeLessThan(15_000);
  throttle();
  await expect(store.get('k')).rejects.toThrow(StoreUnavailableError);
  expect(waitedMs()).toBeLessThan(15_000);
});

test('a stream is written over a slow line that its parts share', { timeout: 60_000 }, async () => {
  await using server = await ScriptedServer.start(inMemory({}));
  await using line = await SlowLine.start(server.endpoint, 2 * MIB);
  const client = clientOf(line.endpoint);
  const store = new FencedS3({
    client,
    bucket: 'bucket',
    partBytes: 5 * MIB,
    partsInFlight: 4,
    requestTimeoutMs: 500,
  });
  const body = randomBytes(20 * MIB);
  // The first write probes the server.
  await store.put('k', Readable.from([body]), { token: 1 });
  const putsBefore = server.count('PUT');
  line.isSlow = true;
  await store.put('slow', Readable.from([body]), { token: 1 });
  line.isSlow = false;
  expect(Buffer.compare((await store.get('slow'))?.body ?? Buffer.alloc(0), body)).toBe(0);
  // Each of the five parts was sent once: the stored form is a little more than 20 MiB.
  expect(server.count('PUT') - putsBefore).toBe(5);
});

/** A TCP relay with a limit of bytes per second over all connections. */
class SlowLine implements AsyncDisposable {
  isSlow = false;
  readonly endpoint: string;
  readonly #sockets = new Set<Socket>();
  readonly #close: () => void;
  readonly #timer: NodeJS.Timeout;

  static async start(upstream: string, bytesPerSecond: number): Promise<SlowLine> {
    const server = createServer();
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return new SlowLine(server, new URL(upstream), bytesPerSecond);
  }

  private constructor(
    server: ReturnType<typeof createServer>,
    { hostname, port }: URL,
    bytesPerSecond: number,
  ) {
    const address = server.address();
    this.endpoint = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
    const waiting: { readonly bytes: Buffer; readonly deliver: () => void }[] = [];
    server.on('connection', (client) => {
      const sink = connect(Number(port), hostname);
      for (const socket of [client, sink]) {
        this.#sockets.add(socket.on('error', () => undefined));
        socket.on('close', () => {
          client.destroy();
          sink.destroy();
        });
      }
      sink.pipe(client);
      client.on('data', (bytes: Buffer) => {
        if (!this.isSlow) return void sink.write(bytes);
        client.pause();
        waiting.push({
          bytes,
          deliver: () => {
            sink.write(bytes);
            client.resume();
          },
        });
      });
    });
    let atMs = performance.now();
    let allowance = 0;
    this.#timer = setInterval(() => {
      const nowMs = performance.now();
      allowance += ((nowMs - atMs) / 1_000) * bytesPerSecond;
      atMs = nowMs;
      if (waiting.length === 0) allowance = 0;
      while (waiting[0] !== undefined && allowance > 0) {
        const next = waiting.shift();
        allowance -= next?.bytes.length ?? 0;
        next?.deliver();
      }
    }, 10);
    this.#close = () => server.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
