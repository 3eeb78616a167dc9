import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { setTimeout } from 'node:timers/promises';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { type Direction, TcpProxy } from './proxy.js';
import { startRedis } from './redis.js';

/** Waits until the assertion holds, however slow the machine is. */
const eventually = (assertion: () => void | Promise<void>) => vi.waitFor(assertion, 20_000);

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

/** A server in this process behind a proxy. `sockets` are the server's ends of the connections. */
async function serve(onConnection: (socket: Socket) => void) {
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  await listen(server);
  const { port } = server.address() as AddressInfo;
  const proxy = await TcpProxy.start({ host: '127.0.0.1', port });
  opened.push(
    () => server.close(),
    () => proxy.stop(),
  );
  return { proxy, sockets };
}

async function listen(server: Server): Promise<void> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
}

const serveEcho = () => serve((socket) => socket.pipe(socket));

async function open(proxy: TcpProxy): Promise<Socket> {
  const socket = connect({ host: proxy.host, port: proxy.port, allowHalfOpen: true });
  opened.push(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** End of a connection, as its reader sees it. */
async function endOf(socket: Socket): Promise<string> {
  try {
    await buffer(socket);
    return 'end';
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  }
}

/** A Redis with a client through the proxy, a direct one, and a new key. */
async function redisBehindProxy() {
  const service = await startRedis(1);
  const [node] = service.nodes;
  if (node === undefined) throw new Error('one node was started');
  const proxy = await TcpProxy.start(node);
  const direct = new Redis(node.url);
  const through = new Redis(proxy.port, {
    retryStrategy: () => null,
    lazyConnect: true,
    disconnectTimeout: 10,
  });
  for (const client of [direct, through]) client.on('error', () => undefined);
  opened.push(
    () => service.stop(),
    () => proxy.stop(),
    () => direct.disconnect(),
    () => through.disconnect(),
  );
  await through.connect();
  return { proxy, direct, through, key: randomUUID() };
}

describe('without a fault', () => {
  test('bytes come back, and each half closes on its own', async () => {
    const { proxy } = await serveEcho();
    const client = await open(proxy);
    client.end('a question');
    expect(String(await buffer(client))).toBe('a question');
    expect(proxy.bytes('toServer')).toBe(10);
    expect(proxy.bytes('toClient')).toBe(10);
    expect(proxy.connections).toBe(1);
  });

  test('a server that closed its half still receives bytes', async () => {
    const heard: Promise<Buffer>[] = [];
    const { proxy } = await serve((socket) => {
      socket.end();
      heard.push(buffer(socket));
    });
    const client = await open(proxy);
    await once(client.resume(), 'end');
    client.end('still listening?');
    expect((await Promise.all(heard)).map(String)).toEqual(['still listening?']);
  });

  test('a slow reader slows the writer down: 100 MB are never in the proxy at once', async () => {
    const bytesTotal = 100_000_000;
    const chunk = Buffer.alloc(100_000, 'x');
    let bytesRead = 0;
    let bytesBetweenMax = 0;
    const { proxy, sockets } = await serve(() => undefined);
    const client = await open(proxy);
    const sent = pipeline(function* () {
      for (let bytes = 0; bytes < bytesTotal; bytes += chunk.length) yield chunk;
    }, client);
    await eventually(() => expect(sockets).toHaveLength(1));
    for await (const bytes of sockets[0] ?? []) {
      bytesBetweenMax = Math.max(bytesBetweenMax, proxy.bytes('toServer') - bytesRead);
      bytesRead += bytes.length;
      await setTimeout(1);
    }
    await sent;
    expect(bytesRead).toBe(bytesTotal);
    // The limit is generous, because the kernel's buffers hold bytes, too.
    expect(bytesBetweenMax).toBeLessThan(20_000_000);
  });

  test('round trips are counted, not commands', async () => {
    const { proxy, through, key } = await redisBehindProxy();
    const before = proxy.roundTrips;
    for (let command = 0; command < 3; command += 1) await through.ping();
    expect(proxy.roundTrips - before).toBe(3);
    const pipelined = through.pipeline();
    for (let command = 0; command < 10; command += 1) pipelined.ping();
    await pipelined.exec();
    expect(proxy.roundTrips - before).toBe(4);
    // A value that arrives in many pieces is one round trip as well.
    await through.set(key, 'x'.repeat(5_000_000));
    await through.get(key);
    expect(proxy.roundTrips - before).toBe(6);
  });
});

describe('hold and release', () => {
  test('a held command runs when it is released, not before', async () => {
    const { proxy, direct, through, key } = await redisBehindProxy();
    proxy.hold('toServer');
    const reply = through.set(key, 'late');
    await proxy.untilHeld('toServer');
    expect(await direct.get(key)).toBeNull();
    proxy.release('toServer');
    expect(await reply).toBe('OK');
    expect(await direct.get(key)).toBe('late');
    expect(proxy.heldBytes('toServer')).toBe(0);
  });

  test('a held command runs even if its sender was cut off', async () => {
    const { proxy, direct, through, key } = await redisBehindProxy();
    proxy.hold('toServer');
    const reply = through.set(key, 'from the dead').catch(() => 'unknown');
    await proxy.untilHeld('toServer');
    through.disconnect();
    expect(await reply).toBe('unknown');
    proxy.release('toServer');
    await eventually(async () => expect(await direct.get(key)).toBe('from the dead'));
  });

  test('a held reply: the command ran, and the client does not know yet', async () => {
    const { proxy, direct, through, key } = await redisBehindProxy();
    proxy.hold('toClient');
    const reply = through.set(key, 'done');
    await proxy.untilHeld('toClient', { bytesMin: '+OK\r\n'.length });
    expect(await direct.get(key)).toBe('done');
    proxy.release('toClient');
    expect(await reply).toBe('OK');
  });

  test('a new connection is accepted during a hold, and its bytes wait', async () => {
    const { proxy } = await serveEcho();
    proxy.hold('toServer');
    const client = await open(proxy);
    client.end('hello');
    await proxy.untilHeld('toServer', { bytesMin: 5 });
    expect(proxy.bytes('toClient')).toBe(0);
    proxy.release('toServer');
    expect(String(await buffer(client))).toBe('hello');
  });

  test.each([
    ['an end', (socket: Socket) => socket.end('bye'), 'end'],
    ['a reset', (socket: Socket) => socket.resetAndDestroy(), 'ECONNRESET'],
  ])('%s of the server during a hold reaches the client after it', async (_, close, expected) => {
    const { proxy, sockets } = await serve(() => undefined);
    const client = await open(proxy);
    const end = endOf(client);
    await eventually(() => expect(sockets).toHaveLength(1));
    proxy.hold('toClient');
    for (const socket of sockets) close(socket);
    await eventually(() => expect(sockets[0]?.writableFinished || sockets[0]?.closed).toBe(true));
    // When a later connection has reached the server, the end had time to reach the client.
    await open(proxy);
    await eventually(() => expect(sockets).toHaveLength(2));
    expect(client.readableEnded || client.closed).toBe(false);
    proxy.release('toClient');
    expect(await end).toBe(expected);
  });

  test('a hold accepts any number of bytes', async () => {
    const { proxy } = await serveEcho();
    const body = Buffer.alloc(30_000_000, 'x');
    proxy.hold('toServer');
    const client = await open(proxy);
    client.end(body);
    await proxy.untilHeld('toServer', { bytesMin: body.length });
    proxy.release('toServer');
    expect((await buffer(client)).equals(body)).toBe(true);
  });

  test('bytes held for a disconnected client are lost', async () => {
    const { proxy } = await serve((socket) => socket.write('too late'));
    proxy.hold('toServer');
    proxy.hold('toClient');
    const client = await open(proxy);
    await proxy.untilHeld('toClient');
    client.resetAndDestroy();
    await eventually(() => expect(proxy.heldBytes('toClient')).toBe(0));
  });

  test('a wait ends with its signal, and with the proxy', async () => {
    const { proxy } = await serveEcho();
    proxy.hold('toServer');
    const controller = new AbortController();
    const aborted = proxy.untilHeld('toServer', { signal: controller.signal });
    const stopped = proxy.untilHeld('toServer');
    const reason = new Error('enough');
    controller.abort(reason);
    await expect(aborted).rejects.toBe(reason);
    await Promise.all([expect(stopped).rejects.toThrow('stopped'), proxy.stop()]);
    await proxy.stop();
  });
});

describe('swallow', () => {
  test('a lost reply: the command ran, the client never knows, and the connection is reset', async () => {
    const { proxy, direct, through, key } = await redisBehindProxy();
    proxy.swallow('toClient');
    const reply = through.set(key, 'done').catch((error: Error) => error);
    await proxy.untilSwallowed('toClient');
    expect(await direct.get(key)).toBe('done');
    proxy.heal();
    expect(await reply).toBeInstanceOf(Error);
    await through.connect();
    expect(await through.get(key)).toBe('done');
  });

  test('held bytes can be discarded', async () => {
    const { proxy } = await serveEcho();
    const client = await open(proxy);
    const end = endOf(client);
    proxy.hold('toServer');
    client.write('lost');
    await proxy.untilHeld('toServer', { bytesMin: 4 });
    proxy.swallow('toServer');
    expect(proxy.swallowedBytes('toServer')).toBe(4);
    expect(proxy.heldBytes('toServer')).toBe(0);
    proxy.heal();
    expect(await end).toBe('ECONNRESET');
    expect(proxy.bytes('toClient')).toBe(0);
  });

  test('a connection that lost nothing continues', async () => {
    const { proxy } = await serveEcho();
    const client = await open(proxy);
    proxy.swallow('toClient');
    proxy.release('toClient');
    client.end('still here');
    expect(String(await buffer(client))).toBe('still here');
  });
});

describe('delay', () => {
  test('every byte arrives late by the delay, in order', async () => {
    const { proxy } = await serveEcho();
    const delayMs = 80;
    proxy.delay('toServer', delayMs);
    proxy.delay('toClient', delayMs);
    const client = await open(proxy);
    const sentAtMs = performance.now();
    client.write('one');
    client.end(' two');
    expect(String(await buffer(client))).toBe('one two');
    expect(performance.now() - sentAtMs).toBeGreaterThanOrEqual(2 * delayMs - 1);
  });

  test('delayed bytes arrive at once when the delay is removed', async () => {
    const { proxy } = await serveEcho();
    proxy.delay('toServer', 3_600_000);
    const client = await open(proxy);
    client.end('late');
    await proxy.untilHeld('toServer', { bytesMin: 4 });
    proxy.heal();
    expect(String(await buffer(client))).toBe('late');
  });

  test.each([-1, Number.NaN, Number.POSITIVE_INFINITY])('%d ms are refused', async (delayMs) => {
    const { proxy } = await serveEcho();
    expect(() => proxy.delay('toServer', delayMs)).toThrow(RangeError);
  });
});

test('redirect cuts open connections, and new ones reach the other server', async () => {
  const one = await serve((socket) => socket.end('one'));
  const two = await serve((socket) => socket.end('two'));
  const silent = await serve(() => undefined);
  const before = await open(silent.proxy);
  await eventually(() => expect(silent.sockets).toHaveLength(1));
  silent.proxy.redirect({ host: one.proxy.host, port: one.proxy.port });
  expect(await endOf(before)).toBe('ECONNRESET');
  expect(String(await buffer(await open(silent.proxy)))).toBe('one');
  silent.proxy.redirect({ host: two.proxy.host, port: two.proxy.port });
  expect(String(await buffer(await open(silent.proxy)))).toBe('two');
});

test('lead keeps open connections, and new ones reach the other server', async () => {
  const { proxy } = await serveEcho();
  const two = await serve((socket) => socket.end('two'));
  const before = await open(proxy);
  proxy.lead({ host: two.proxy.host, port: two.proxy.port });
  expect(String(await buffer(await open(proxy)))).toBe('two');
  before.end('still one');
  expect(String(await buffer(before))).toBe('still one');
});

test('forgotten connections carry nothing, not even their end, and new ones work', async () => {
  const { proxy } = await serveEcho();
  const before = await open(proxy);
  proxy.forget();
  before.end('lost');
  await proxy.untilSwallowed('toServer', { bytesMin: 4 });
  const after = await open(proxy);
  after.end('new');
  expect(String(await buffer(after))).toBe('new');
  expect(before.readableEnded).toBe(false);
  expect(proxy.bytes('toClient')).toBe(3);
});

describe('cut and refuse', () => {
  test('both sides are reset at once, and held bytes are lost', async () => {
    const { proxy, sockets } = await serve(() => undefined);
    const client = await open(proxy);
    const clientEnd = endOf(client);
    await eventually(() => expect(sockets).toHaveLength(1));
    const serverEnds = sockets.map(endOf);
    proxy.hold('toServer');
    client.write('lost');
    await proxy.untilHeld('toServer');
    proxy.cut();
    expect(await clientEnd).toBe('ECONNRESET');
    expect(await Promise.all(serverEnds)).toEqual(['ECONNRESET']);
    expect(proxy.heldBytes('toServer')).toBe(0);
  });

  test('new connections are reset until `accept`; old ones continue', async () => {
    const { proxy } = await serveEcho();
    const old = await open(proxy);
    await eventually(() => expect(proxy.connections).toBe(1));
    proxy.refuse();
    expect(await endOf(connect(proxy.port, proxy.host))).toBe('ECONNRESET');
    old.end('old');
    expect(String(await buffer(old))).toBe('old');
    proxy.accept();
    const later = await open(proxy);
    later.end('new');
    expect(String(await buffer(later))).toBe('new');
  });

  test('a shut proxy resets old and new connections until `accept`', async () => {
    const { proxy } = await serveEcho();
    const old = await open(proxy);
    await eventually(() => expect(proxy.connections).toBe(1));
    proxy.shut();
    expect(await endOf(old)).toBe('ECONNRESET');
    expect(await endOf(connect(proxy.port, proxy.host))).toBe('ECONNRESET');
    proxy.accept();
    const later = await open(proxy);
    later.end('new');
    expect(String(await buffer(later))).toBe('new');
  });

  test('without a server, clients are reset; a stopped proxy frees its port', async () => {
    const { proxy } = await serveEcho();
    const { port } = proxy;
    await proxy.stop();
    const before = await TcpProxy.start({ host: '127.0.0.1', port });
    opened.push(() => before.stop());
    expect(await endOf(connect(before.port, before.host))).toBe('ECONNRESET');
  });

  test('a connection cut anywhere has delivered a prefix, and others continue', async () => {
    const { proxy } = await serveEcho();
    const body = Buffer.from(Array.from({ length: 300_000 }, (_, index) => index % 251));
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: body.length }), async (bytesBefore) => {
        const client = await open(proxy);
        const received: Buffer[] = [];
        let bytesReceived = 0;
        client.on('error', () => undefined);
        const closed = new Promise((resolve) => client.once('close', resolve));
        client.on('data', (bytes: Buffer) => {
          received.push(bytes);
          bytesReceived += bytes.length;
          if (bytesReceived >= bytesBefore) proxy.cut();
        });
        client.write(body);
        if (bytesBefore === 0) proxy.cut();
        await closed;
        expect(Buffer.concat(received).equals(body.subarray(0, bytesReceived))).toBe(true);
      }),
      { numRuns: 50 },
    );
    const client = await open(proxy);
    client.end('whole');
    expect(String(await buffer(client))).toBe('whole');
  });
});

test('bytes arrive in order and intact through any holds, delays and releases', async () => {
  const { proxy } = await serveEcho();
  const direction = fc.constantFrom<Direction>('toServer', 'toClient');
  const step = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 100_000 }).map((bytes) => ({ bytes })),
    direction.map((held) => ({ held })),
    direction.map((released) => ({ released })),
    fc.record({ delayed: direction, delayMs: fc.integer({ min: 0, max: 5 }) }),
    fc.constant({ turn: true }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const client = await open(proxy);
      const received = buffer(client);
      const sent: Uint8Array[] = [];
      for (const step of steps) {
        if ('bytes' in step) {
          sent.push(step.bytes);
          client.write(step.bytes);
        } else if ('held' in step) proxy.hold(step.held);
        else if ('released' in step) proxy.release(step.released);
        else if ('delayed' in step) proxy.delay(step.delayed, step.delayMs);
        else await new Promise(setImmediate);
      }
      client.end();
      proxy.heal();
      expect((await received).equals(Buffer.concat(sent))).toBe(true);
    }),
    { numRuns: 100 },
  );
});
