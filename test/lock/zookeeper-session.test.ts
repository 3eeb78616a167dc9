import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { startZooKeeper, TcpProxy, type ZooKeeperService } from '@fenced/testbed';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { JuteWriter } from '../../packages/lock/src/zookeeper/protocol/jute.js';
import {
  create,
  EPHEMERAL_SEQUENTIAL,
  getChildren,
  getData,
  OPEN,
  PERSISTENT,
  setData,
  watchExists,
} from '../../packages/lock/src/zookeeper/protocol/operations.js';
import type { Session } from '../../packages/lock/src/zookeeper/protocol/session.js';
import { insist, openSession, SESSION_MS } from './harness/zookeeper.js';

const sessions: Session[] = [];

function open(addresses: string): Session {
  const session = openSession(addresses);
  sessions.push(session);
  return session;
}

afterEach(async () => {
  await Promise.all(sessions.splice(0).map((session) => session.close()));
});

describe('a session with three servers', () => {
  let service: ZooKeeperService;
  const inTime = (): AbortSignal => AbortSignal.timeout(5_000);
  beforeAll(async () => {
    service = await startZooKeeper(3);
  });
  afterAll(() => service?.stop());

  test('lives on when the leader of its servers is killed', async () => {
    const session = open(service.addresses);
    await session.request(create('/moves', '', PERSISTENT, OPEN), inTime());
    await session.request(create('/moves/n-', '', EPHEMERAL_SEQUENTIAL, OPEN), inTime());
    const { id } = session;
    const leader = await service.leader();
    await leader.kill();
    await insist(session, setData('/moves', '', -1));
    await leader.start();
    expect(session.id).toBe(id);
    expect(await insist(session, getChildren('/moves'))).toEqual(['n-0000000000']);
  });

  test('a watch fires once: when its node changes, or when the connection is lost', async () => {
    const [server] = service.servers;
    await using proxy = await TcpProxy.start(server ?? { host: '', port: 0 });
    const session = open(`127.0.0.1:${proxy.port}`);
    let fired = Promise.withResolvers<void>();
    const onWatch = () => fired.resolve();
    const missing = session.request(watchExists('/watched'), inTime(), onWatch);
    await expect(missing).rejects.toMatchObject({ code: -101 });
    await session.request(create('/watched', '', PERSISTENT, OPEN), inTime());
    await fired.promise;
    fired = Promise.withResolvers();
    await session.request(getData('/watched', true), inTime(), onWatch);
    proxy.cut();
    await fired.promise;
    await insist(session, getData('/watched', false));
  });

  test('expires with its ephemeral nodes, and a new one begins', async () => {
    const [server] = service.servers;
    const proxy = await TcpProxy.start(server ?? { host: '', port: 0 });
    const session = open(`127.0.0.1:${proxy.port}`);
    const other = open(service.addresses);
    await other.request(create('/expires', '', PERSISTENT, OPEN), inTime());
    await session.request(create('/expires/n-', '', EPHEMERAL_SEQUENTIAL, OPEN), inTime());
    const { id } = session;
    proxy.hold('toServer');
    while ((await insist(other, getChildren('/expires'))).length > 0) await sleep(20);
    proxy.cut();
    proxy.heal();
    await insist(session, getChildren('/expires'));
    expect(session.id).not.toBe(id);
    await proxy.stop();
  });
});

describe('a server that is none', () => {
  const hello = (timeoutMs = SESSION_MS): Buffer =>
    new JuteWriter().int(0).int(timeoutMs).long(7n).bytes(Buffer.alloc(16)).bool(false).frame();

  test.each<[string, (socket: Socket) => void]>([
    ['sends a frame of impossible length', (socket) => socket.write('HTTP/1.1 400 Bad Request')],
    ['ends its handshake in the middle', (socket) => socket.end(hello().subarray(0, 9))],
    ['ends sessions at once', (socket) => socket.write(hello(0))],
    [
      'answers another request',
      (socket) => socket.write(Buffer.concat([hello(), reply(99).frame()])),
    ],
    ['cuts its reply', (socket) => socket.write(Buffer.concat([hello(), reply(1).frame()]))],
    [
      'says that the session has expired',
      (socket) => {
        socket.write(hello());
        // Skips the first bytes, which are a ping.
        socket.once('data', () => socket.once('data', () => socket.write(reply(1, -112).frame())));
      },
    ],
    ['says nothing', () => undefined],
  ])('%s: the request fails in time, and is not repeated in a loop', async (_, answer) => {
    let connections = 0;
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      connections += 1;
      sockets.push(socket);
      socket.on('error', () => undefined);
      socket.once('data', () => answer(socket));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const session = open(`127.0.0.1:${port}`);
    const request = session.request(getChildren('/'), AbortSignal.timeout(400));
    // The error is no refusal by a server, because the session would not repeat a refused request.
    await expect(request).rejects.not.toMatchObject({ name: 'ZooKeeperError' });
    expect(connections).toBeLessThan(6);
    await session.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  /** The header of a reply without its content. */
  function reply(xid: number, code = 0): JuteWriter {
    return new JuteWriter().int(xid).long(1n).int(code);
  }
});
