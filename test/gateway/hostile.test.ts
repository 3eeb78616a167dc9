import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requestOf, send, typeOf } from './harness/raw.js';
import { type Front, GatewayWorld, problemOf, until } from './harness/world.js';

const IDLE_MS = 400;
let world: GatewayWorld;
/** A gateway with short limits, which a test can wait for. A busy machine may exceed them. */
let front: Front;
/** A gateway with the default limits. */
let patient: Front;

beforeAll(async () => {
  world = await GatewayWorld.start();
  front = await world.open({
    limits: {
      idleTimeoutMs: IDLE_MS,
      recordBytesMax: 1_000,
      bodyBytesMax: 2 ** 24,
      headersTimeoutMs: 300,
    },
    server: { idleMs: 10_000, keepAliveMs: 300 },
  });
  patient = await world.open();
});

afterAll(async () => {
  await patient?.[Symbol.asyncDispose]();
  await front?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

const TOKEN = ['Fencing-Token', '1'] as const;
const OBJECT = '/v1/objects/hostile';

describe('malformed requests', () => {
  test.each([
    ['both lengths', 'PUT', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'],
    ['two lengths', 'PUT', 'Content-Length: 5\r\nContent-Length: 6\r\n', 'abcdef'],
    ['the same length twice', 'PUT', 'Content-Length: 5\r\nContent-Length: 5\r\n', 'abcde'],
    ['lengths in one line', 'PUT', 'Content-Length: 5, 5\r\n', 'abcde'],
    ['a signed length', 'PUT', 'Content-Length: +5\r\n', 'abcde'],
    ['a length in hexadecimal', 'PUT', 'Content-Length: 0x5\r\n', 'abcde'],
    ['a coding before chunked', 'PUT', 'Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n'],
    ['chunked that is not last', 'PUT', 'Transfer-Encoding: chunked, identity\r\n', '0\r\n\r\n'],
    [
      'chunked twice',
      'PUT',
      'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n',
      '0\r\n\r\n',
    ],
    ['chunked in disguise', 'PUT', 'Transfer-Encoding: xchunked\r\n', '0\r\n\r\n'],
    [
      'chunked behind a control character',
      'PUT',
      'Transfer-Encoding: \x0bchunked\r\n',
      '0\r\n\r\n',
    ],
    ['a space before the colon', 'PUT', 'Content-Length : 5\r\n', 'abcde'],
    ['a folded header', 'PUT', 'X-A: 1\r\n Content-Length: 5\r\n', 'abcde'],
    ['NUL in a header', 'GET', 'X-A: a\0b\r\n', ''],
    ['a bare CR', 'GET', 'X-A: a\rContent-Length: 5\r\n', ''],
    ['a bare LF', 'GET', 'X-A: a\nContent-Length: 5\r\n', ''],
    [
      'a chunk with a wrong size',
      'PUT',
      'Transfer-Encoding: chunked\r\n',
      'zz\r\nabc\r\n0\r\n\r\n',
    ],
    [
      'a chunk that is longer than it says',
      'PUT',
      'Transfer-Encoding: chunked\r\n',
      '1\r\nabc\r\n0\r\n\r\n',
    ],
    ['two tokens', 'PUT', 'Fencing-Token: 9\r\nContent-Length: 0\r\n', ''],
    ['two hosts', 'GET', 'Host: other\r\n', ''],
    ['two credentials', 'GET', 'Authorization: Bearer a\r\nAuthorization: Bearer b\r\n', ''],
    ['two types', 'PUT', 'Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: 0\r\n', ''],
    ['two ranges', 'GET', 'Range: bytes=0-1\r\nRange: bytes=1-2\r\n', ''],
  ])('%s', async (_, method, headers, body) => {
    const smuggled = `DELETE ${OBJECT} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 2\r\n\r\n`;
    const head = `${method} ${OBJECT} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n${headers}`;
    const replies = await send(patient.url, `${head}Connection: close\r\n\r\n${body}${smuggled}`);
    expect(replies.map(typeOf)).toEqual(['invalid-request']);
    expect(replies.map(({ status }) => status)).toEqual([400]);
    expect(await patient.objects.highest('hostile')).toBe(0n);
  });

  test.each(['chunked', 'CHUNKED', 'gzip, chunked'])(
    'HTTP/1.0 with Transfer-Encoding %s: its end is ambiguous, so nothing after it is read',
    async (coding) => {
      const head = [
        'PUT /v1/objects/framed HTTP/1.0',
        'Fencing-Token: 1',
        'Connection: keep-alive',
      ];
      const smuggled = requestOf('PUT', '/v1/objects/smuggled', [TOKEN], 'x').toString();
      const bytes = `${head.join('\r\n')}\r\nTransfer-Encoding: ${coding}\r\n\r\n1\r\na\r\n0\r\n\r\n`;
      const replies = await send(patient.url, bytes + smuggled);
      expect(replies.map(typeOf)).toEqual(['invalid-request']);
      expect(replies[0]?.headers.connection).toBe('close');
      expect(await patient.objects.highest('framed')).toBe(0n);
      expect(await patient.objects.highest('smuggled')).toBe(0n);
      expect(patient.ended.filter(({ path }) => path === '/v1/objects/smuggled')).toEqual([]);
    },
  );

  test.each([
    ['nothing of HTTP', 'hello\r\n\r\n', 'invalid-request'],
    ['TLS', Buffer.from('16030100f1010000ed0303', 'hex'), 'invalid-request'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'invalid-request'],
    ['a version that is none', 'GET /livez HTTP/9.9\r\nHost: localhost\r\n\r\n', 'invalid-request'],
    ['no host', 'GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n', 'invalid-request'],
    ['an unknown method', 'BREW /livez HTTP/1.1\r\nHost: localhost\r\n\r\n', 'invalid-request'],
    ['a proxy', 'CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n', 'method-not-allowed'],
    ['TRACE', requestOf('TRACE', OBJECT), 'method-not-allowed'],
    ['OPTIONS', requestOf('OPTIONS', OBJECT), 'method-not-allowed'],
    ['OPTIONS of all', requestOf('OPTIONS', '*'), 'invalid-path'],
    ['another host in the target', requestOf('GET', 'http://other/livez'), 'invalid-path'],
    [
      'long headers',
      requestOf('GET', '/livez', [['X-A', 'a'.repeat(20_000)]]),
      'headers-too-large',
    ],
    ['a long target', requestOf('GET', `/v1/objects/${'a'.repeat(20_000)}`), 'headers-too-large'],
    [
      'many headers',
      requestOf(
        'GET',
        '/livez',
        Array.from({ length: 9_000 }, () => ['a', '1'] as const),
      ),
      'headers-too-large',
    ],
    [
      'an expectation',
      requestOf('PUT', OBJECT, [TOKEN, ['Expect', 'miracles']], 'a'),
      'expectation-failed',
    ],
    [
      'an upgrade',
      requestOf('PATCH', OBJECT, [
        ['Connection', 'Upgrade'],
        ['Upgrade', 'websocket'],
      ]),
      'method-not-allowed',
    ],
  ])('%s', async (_, bytes, type) => {
    expect((await send(patient.url, bytes)).map(typeOf)).toEqual([type]);
  });

  test('a second token is refused, even behind more headers than Node keeps by default', async () => {
    const many = Array.from({ length: 2_100 }, () => ['a', ''] as const);
    const [reply] = await send(patient.url, requestOf('PUT', OBJECT, [TOKEN, ...many, TOKEN], 'a'));
    expect([reply?.status, typeOf(reply)]).toEqual([400, 'invalid-request']);
  });
});

describe('names', () => {
  test.each([
    ...['a/../b', '..', './a', 'a/.', '%2e%2e/b', '.%2e/b', '%2e', '%2E%2E', 'a/%2e%2e/b'],
    ...['a%2F..%2Fb', 'a%2f%2e%2e%2fb', '..%2Fb', 'a%2F%2E%2E', 'a%2F.', '%2e%2Fa', 'a%2F..'],
    ...['/a', 'a//b', 'a/', '', '%2Fa', 'a%2F%2Fb', 'a%2F/b', 'a%2F', '%2F', '%2F%2F'],
    ...['a%5Cb', 'a\\b', '..%5Cb', 'a%2F..%5Cb', '%5C%5Chost'],
    ...['a%00', '%00', 'a%2F%00b', 'a%0d%0aX-A:b', '%7f', '%C2%85'],
    ...[
      '%ff',
      '%C0%AF',
      '%c0%ae%c0%ae',
      '%E0%80%AF',
      '%F0%80%80%AF',
      '%ED%A0%80',
      '%',
      '%2',
      '%C3/%A4',
    ],
    ...['a%CC%88', '%E2%84%AB', 'a#b', 'a"b', '\u00e4'],
  ])('%s names nothing', async (name) => {
    for (const [method, target] of [
      ...['GET', 'PUT', 'DELETE', 'HEAD'].map((method) => [method, `/v1/objects/${name}`] as const),
      ['POST', `/v1/objects/${name}/claim`],
      ['POST', `/v1/leases/${name}`],
      ['PUT', `/v1/records/a/${name}`],
      ['PUT', `/v1/records/${name}/a`],
      ['GET', `/v1/ratchets/s3/${name}`],
    ] as const) {
      const [reply] = await send(patient.url, requestOf(method, target, [TOKEN]));
      expect([method, reply?.status]).toEqual([method, 400]);
      if (method !== 'HEAD') expect(typeOf(reply)).toMatch(/^invalid-(path|request)$/);
    }
    const named = [TOKEN, ['Fencing-Resource', name]] as const;
    if (name !== '' && !/[^\x21-\x7e]/.test(name))
      expect((await send(patient.url, requestOf('PUT', OBJECT, named, 'a'))).map(typeOf)).toEqual([
        'invalid-path',
      ]);
  });

  // A proxy may block a path such as /metrics. So no other spelling may lead to the same route.
  test.each([
    ...['//v1/objects/a', '/v1/../v1/objects/a', '/v1%2Fobjects%2Fa', '/%761/objects/a'],
    ...['/v1/%6f%62/../objects/a', '/v1/%6fbjects/a', '/%6civez', '/livez%2f', '/./livez'],
  ])('%s is no route', async (target) => {
    const replies = await send(patient.url, requestOf('GET', target));
    expect(replies.map(typeOf)).toEqual(['invalid-path']);
  });

  test('a name is decoded once: every encoding means the same object, rights and log line', async () => {
    const may = (verb: string, resource: string): boolean =>
      verb !== 'write' || resource === 'objects/one/of us/100%2Fa';
    const keys = { authenticate: async () => ({ name: 'somebody', may }) };
    await using strict = await world.open({ credentials: keys });
    const spellings = [
      ...['one/of%20us/100%252Fa', 'one%2Fof%20us%2F100%252Fa', 'one%2fof%20us/100%252F%61'],
      ...['%6Fne/of%20us%2f100%25%32Fa', 'one/of%20us/100%252%46a'],
    ];
    for (const [at, spelling] of spellings.entries()) {
      const token = ['Fencing-Token', String(at + 1)] as const;
      const target = `/v1/objects/${spelling}`;
      const [put] = await send(strict.url, requestOf('PUT', target, [token], `${at}`));
      expect([spelling, put?.status]).toEqual([spelling, 200]);
      expect(await patient.objects.highest('one/of us/100%2Fa')).toBe(BigInt(at + 1));
    }
    for (const other of ['one/of%20us/100/a', 'one/of%20us/100%2Fa', 'one/of%2520us/100%252Fa']) {
      const [refused] = await send(strict.url, requestOf('PUT', `/v1/objects/${other}`, [TOKEN]));
      expect([other, typeOf(refused)]).toEqual([other, 'forbidden']);
    }
    const facts = strict.ended.map(({ path, resource, status }) => [path, resource, status]);
    expect(facts.slice(0, spellings.length)).toEqual(
      spellings.map(() => ['/v1/objects/one/of%20us/100%252Fa', 'objects/one/of us/100%2Fa', 200]),
    );
    expect(facts.slice(spellings.length).map(([, resource]) => resource)).toEqual([
      ...['objects/one/of us/100/a', 'objects/one/of us/100/a', 'objects/one/of%20us/100%2Fa'],
    ]);
  });

  test('generated clients may encode the slashes of every name', async () => {
    const json = ['Content-Type', 'application/json'] as const;
    const granted = requestOf('POST', '/v1/leases/gen%2Fa', [json], '{"ttlMs":5000}');
    const [lease] = await send(patient.url, granted);
    const { resource, leaseId } = JSON.parse(lease?.body ?? '') as Record<string, string>;
    expect([resource, lease?.headers.location]).toEqual(['gen/a', `/v1/leases/gen/a/${leaseId}`]);
    for (const [method, target, status] of [
      ['PATCH', `/v1/leases/gen%2Fa/${leaseId}`, 200],
      ['DELETE', `/v1/leases/gen%2Fa/${leaseId}`, 200],
      ['PUT', '/v1/records/gen%2Fa', 200],
      ['PUT', '/v1/records/gen%2Fa%2Fb', 404],
      ['POST', '/v1/objects/gen%2Fa/claim', 200],
      ['POST', '/v1/objects/gen%2Fa/claim-and-get', 404],
      ['GET', '/v1/ratchets/s3/gen%2Fa', 200],
    ] as const) {
      const body = method === 'GET' || method === 'DELETE' ? '' : '{"ttlMs":5000}';
      const [reply] = await send(patient.url, requestOf(method, target, [TOKEN, json], body));
      expect([method, target, reply?.status]).toEqual([method, target, status]);
    }
    expect(await patient.objects.highest('gen/a')).toBe(1n);
    const [upper] = await send(patient.url, requestOf('GET', '/v1/Objects/same/a~'));
    expect(typeOf(upper)).toBe('no-such-route');
  });
});

/** A raw connection, and the text that it has received. */
class Client implements Disposable {
  readonly socket: Socket;
  text = '';

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.socket = connect(Number(port), hostname);
    this.socket.on('error', () => undefined);
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => {
      this.text += text;
    });
  }

  async closed(): Promise<void> {
    if (!this.socket.closed)
      await once(this.socket, 'close', { signal: AbortSignal.timeout(8_000) });
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }
}

describe('slow and greedy clients', () => {
  test('headers that do not arrive end with 408', async () => {
    using client = new Client(front.url);
    client.socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n');
    await client.closed();
    expect(client.text).toContain('urn:fenced:problem:request-timeout');
  });

  test('an idle connection is closed', async () => {
    using client = new Client(front.url);
    await client.closed();
    using second = new Client(front.url);
    second.socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await second.closed();
    expect(second.text).toContain('ok\n');
  });

  test.each([
    ['that sends nothing', '', 408],
    ['that sends half a request', 'GET /livez HTTP/1.1\r\n', 408],
    ['that sends no HTTP', 'hello\r\n\r\n', 400],
    ['that asks for a proxy', 'CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n', 405],
  ])(
    'a connection %s and never closes its side loses its descriptor soon after the answer',
    async (_, bytes, status) => {
      await using own = await world.open({ limits: { headersTimeoutMs: 300 } });
      const { hostname, port } = new URL(own.url);
      const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
      let text = '';
      socket.setEncoding('latin1').on('data', (piece: string) => {
        text += piece;
      });
      const reset = new Promise<string | undefined>((resolve) => {
        socket.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
      });
      socket.write(bytes);
      await once(socket, 'end');
      expect(text).toContain(`HTTP/1.1 ${status} `);
      // If the gateway has closed its socket, it answers further bytes with a reset.
      const probing = setInterval(() => socket.write('x'), 20);
      const code = await Promise.race([reset, sleep(5_000, 'still open', { ref: false })]);
      clearInterval(probing);
      socket.destroy();
      expect(code).toMatch(/^(?:ECONNRESET|EPIPE)$/);
    },
  );

  test.each(['/v1/objects/slow', '/v1/records/slow/1'])(
    'a body for %s that arrives byte by byte is given up, and nothing is written',
    async (target) => {
      using client = new Client(front.url);
      const head = [`PUT ${target} HTTP/1.1`, 'Host: localhost', 'Fencing-Token: 1'];
      const headers = ['Content-Type: application/json', 'Content-Length: 1000'];
      client.socket.write(`${[...head, ...headers].join('\r\n')}\r\n\r\n`);
      const drip = setInterval(() => client.socket.write('1'), 50);
      await until(() => client.text.includes('request-timeout'));
      clearInterval(drip);
      expect(client.text).toMatch(/^HTTP\/1\.1 408 /);
      expect((await fetch(front.url + target)).status).toBe(404);
    },
  );

  test('an upload that breaks off is not written', async () => {
    using client = new Client(front.url);
    const head = ['PUT /v1/objects/broken HTTP/1.1', 'Host: localhost', 'Fencing-Token: 1'];
    client.socket.write(`${head.join('\r\n')}\r\nContent-Length: 100\r\n\r\nabc`);
    await until(() => client.socket.bytesWritten > 0);
    client.socket.resetAndDestroy();
    await until(() => front.ended.some((one) => one.path === '/v1/objects/broken'));
    expect(front.ended.find((one) => one.path === '/v1/objects/broken')?.outcome).toBe(
      'client-gone',
    );
    expect(await front.objects.highest('broken')).toBe(0n);
  });

  test('a client that does not read its answer is cut off', async () => {
    const bytes = randomBytes(2 ** 24);
    await fetch(`${front.url}/v1/objects/large`, {
      method: 'PUT',
      body: bytes,
      headers: { 'Fencing-Token': '1' },
    });
    using client = new Client(front.url);
    client.socket.pause();
    client.socket.write('GET /v1/objects/large HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const isIt = (one: { path: string; method: string }): boolean =>
      one.path === '/v1/objects/large' && one.method === 'GET';
    await until(() => front.ended.some(isIt));
    expect(front.ended.find(isIt)?.outcome).toBe('client-gone');
  });

  test('a body that is too large is refused by its declared length, or as soon as it exceeds the limit', async () => {
    const declared = requestOf('PUT', OBJECT, [TOKEN], Buffer.alloc(2 ** 24 + 1));
    expect((await send(front.url, declared)).map(typeOf)).toEqual(['body-too-large']);
    const early = `PUT ${OBJECT} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nContent-Length: 99999999\r\n\r\n`;
    using client = new Client(front.url);
    client.socket.write(early);
    await until(() => client.text.includes('body-too-large'));
    const chunk = `${(2 ** 20).toString(16)}\r\n${'a'.repeat(2 ** 20)}\r\n`;
    const chunked = `PUT ${OBJECT} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const replies = await send(front.url, `${chunked}${chunk.repeat(17)}0\r\n\r\n`);
    expect(replies.map(typeOf)).toEqual(['body-too-large']);
    expect(await front.objects.highest('hostile')).toBe(0n);
    const record = requestOf(
      'PUT',
      '/v1/records/a/b',
      [TOKEN, ['Content-Type', 'application/json']],
      `"${'a'.repeat(1_000)}"`,
    );
    expect((await send(front.url, record)).map(typeOf)).toEqual(['body-too-large']);
  });

  test('a client that sends everything before it reads gets the reason of the refusal', async () => {
    using client = new Client(front.url);
    client.socket.pause();
    const bytes = requestOf('PUT', OBJECT, [TOKEN], Buffer.alloc(2 ** 24 + 1));
    await new Promise((resolve) => client.socket.write(bytes, resolve));
    client.socket.resume();
    await client.closed();
    expect(client.text).toMatch(/^HTTP\/1\.1 413 /);
  });

  test('a client that expects 100-continue learns first if the body is wanted', async () => {
    using refused = new Client(front.url);
    refused.socket.write(
      `PUT ${OBJECT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n`,
    );
    await refused.closed();
    expect(refused.text).toMatch(/^HTTP\/1\.1 428 [\s\S]*\r\nConnection: close\r\n/);
    using wanted = new Client(front.url);
    wanted.socket.write(
      `PUT /v1/objects/wanted HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n`,
    );
    await until(() => wanted.text === 'HTTP/1.1 100 Continue\r\n\r\n');
    wanted.socket.write('abc');
    await until(() => wanted.text.includes('HTTP/1.1 200 '));
  });

  test('requests of one connection are answered in order, even if the last one is malformed', async () => {
    const two = `${requestOf('GET', '/livez').toString().replace('Connection: close\r\n', '')}`;
    const replies = await send(front.url, `${two}${two}nonsense\r\n\r\n`);
    expect(replies.slice(0, 2).map(({ body }) => body)).toEqual(['ok\n', 'ok\n']);
    for (const rest of replies.slice(2)) expect(typeOf(rest)).toBe('invalid-request');
    const read = 'GET /v1/records/nothing/here HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const proxied = await send(
      patient.url,
      `${read}${read}CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n`,
    );
    expect(proxied.map(typeOf)).toEqual(['not-found', 'not-found', 'method-not-allowed']);
  });

  test('a client of HTTP/1.0 gets no 100 Continue, which it would take for the answer', async () => {
    const head = 'PUT /v1/objects/of-1.0 HTTP/1.0\r\nFencing-Token: 1\r\nExpect: 100-continue\r\n';
    const [reply, ...rest] = await send(patient.url, `${head}Content-Length: 1\r\n\r\na`);
    expect([reply?.status, rest]).toEqual([200, []]);
  });

  test('a pipelined request begins after the answer to the request before it, and never if the client has gone', async () => {
    const json = 'Host: localhost\r\nContent-Type: application/json\r\n';
    const post = (body: string): string =>
      `POST /v1/leases/in-turn HTTP/1.1\r\n${json}Content-Length: ${body.length}\r\n\r\n${body}`;
    using client = new Client(patient.url);
    client.socket.write(post('{"ttlMs":60000}'));
    await until(() => client.text.includes('leaseId'));
    const [, leaseId] = /"leaseId":"([^"]+)"/.exec(client.text) ?? [];
    const release = `DELETE /v1/leases/in-turn/${leaseId} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const path = `/v1/leases/in-turn/${leaseId}`;
    const begun = (): number => patient.ended.filter((one) => one.path === path).length;

    using gone = new Client(patient.url);
    gone.socket.write(post('{"ttlMs":1000,"waitMs":30000}') + release);
    using other = new Client(patient.url);
    other.socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => other.text.includes('ok\n'));
    gone.socket.destroy();
    const isGone = ({ status, route }: Front['ended'][number]): boolean =>
      status === 499 && route === '/v1/leases/{resource}';
    await until(() => patient.ended.some(isGone));

    client.text = '';
    client.socket.write(post('{"ttlMs":1000,"waitMs":200}') + release);
    // If both ran at the same time, the release would free the lock, and the wait would get a
    // lease.
    await until(() => client.text.includes('"released"'));
    expect(client.text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 409', 'HTTP/1.1 200']);
    await until(() => begun() > 0);
    expect(begun()).toBe(1);
  });

  test('the gateway stops reading a connection that has many unanswered requests', async () => {
    using holder = new Client(patient.url);
    const json = 'Host: localhost\r\nContent-Type: application/json\r\n';
    const post = (body: string): string =>
      `POST /v1/leases/unread HTTP/1.1\r\n${json}Content-Length: ${body.length}\r\n\r\n${body}`;
    holder.socket.write(post('{"ttlMs":60000}'));
    await until(() => holder.text.includes('leaseId'));
    using client = new Client(patient.url);
    const one = `GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ${'a'.repeat(8_000)}\r\n\r\n`;
    const pieces = 400;
    let sent = 0;
    client.socket.write(post('{"ttlMs":1000,"waitMs":2000}'));
    const sending = (async () => {
      for (; sent < pieces; sent++)
        await new Promise((resolve) => client.socket.write(one.repeat(20), resolve));
    })();
    await until(() => client.text !== '');
    expect(client.text).toMatch(/^HTTP\/1\.1 409 /);
    // The gateway stops reading. Only the kernel's buffers take bytes after that.
    expect(sent).toBeLessThan(pieces / 2);
    await sending;
    await until(() => client.text.split('HTTP/1.1 200 ').length - 1 === pieces * 20);
  });

  test.each(['end', 'destroy', 'resetAndDestroy'] as const)(
    'an upload whose client breaks off by %s ends at once',
    async (way) => {
      await using narrow = await world.open({ limits: { uploadsMax: 1 } });
      using client = new Client(narrow.url);
      client.socket.write(
        'PUT /v1/objects/broken-off HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n',
      );
      await until(() => client.text.includes('100 Continue'));
      client.socket.write('10000\r\nnot sixty-four thousand');
      client.socket[way]();
      const put = () =>
        fetch(`${narrow.url}/v1/objects/broken-off`, {
          method: 'PUT',
          body: 'a',
          headers: { 'Fencing-Token': '1' },
        });
      // The limit for bodies that come too slowly is half a minute.
      await until(async () => (await put()).status === 200);
    },
  );

  test('excess uploads are refused, and every upload frees its place', async () => {
    await using narrow = await world.open({ limits: { uploadsMax: 2 } });
    const clients = [1, 2].map((number) => {
      const client = new Client(narrow.url);
      client.socket.write(
        `PUT /v1/objects/narrow-${number} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n`,
      );
      return client;
    });
    await until(() => clients.every((client) => client.text.includes('100 Continue')));
    const third = await fetch(`${narrow.url}/v1/objects/narrow-3`, {
      method: 'PUT',
      body: 'a',
      headers: { 'Fencing-Token': '1' },
    });
    expect(third.headers.get('retry-after')).toBe('1');
    expect(await problemOf(third)).toMatchObject({
      type: 'urn:fenced:problem:overloaded',
      status: 503,
    });
    for (const client of clients) client.socket.write('a');
    await until(() => clients.every((client) => client.text.includes('HTTP/1.1 200')));
    const again = await fetch(`${narrow.url}/v1/objects/narrow-3`, {
      method: 'PUT',
      body: 'a',
      headers: { 'Fencing-Token': '1' },
    });
    expect(again.status).toBe(200);
    for (const client of clients) client[Symbol.dispose]();
  });
});
