import { expect, test } from 'vitest';
import type { EndedRequest } from './ended-request.js';
import { createLog } from './log.js';
import { createTokenSigner } from './token-signer.js';

function capture(level: 'debug' | 'info' = 'info') {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({ level }, { write: (text) => lines.push(JSON.parse(text)) });
  return { log, lines, text: () => JSON.stringify(lines) };
}

const line: EndedRequest = {
  id: 'r1',
  method: 'PUT',
  path: '/v1/objects/a',
  route: '/v1/objects/{key}',
  status: 200,
  durationMs: 3.5,
  outcome: 'ok',
  address: null,
  resource: null,
  caller: null,
  token: null,
  writeId: null,
  traceparent: null,
  error: undefined,
};

test('a request is one line, with its known facts and nothing else', () => {
  const { log, lines } = capture();
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  log.request({ ...line, caller: 'ada', resource: 'a', token: 2n ** 62n, traceparent });
  expect(lines).toEqual([
    {
      requestId: 'r1',
      method: 'PUT',
      path: '/v1/objects/a',
      status: 200,
      durationMs: 3.5,
      outcome: 'ok',
      key: 'ada',
      resource: 'a',
      token: '4611686018427387904',
      traceparent,
      level: 'info',
      msg: 'request',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      pid: process.pid,
      hostname: expect.any(String),
    },
  ]);
});

test.each([
  ['/v1/objects/a', 412, 'info'],
  ['/v1/objects/a', 503, 'error'],
  ['/readyz', 200, 'debug'],
  ['/readyz', 503, 'warn'],
])('%s with status %d is logged as %s', (path, status, level) => {
  const { log, lines } = capture('debug');
  log.request({ ...line, path, status });
  expect(lines).toMatchObject([{ level }]);
});

test('checks of a platform are not logged at level info', () => {
  const { log, lines } = capture();
  for (const path of ['/livez', '/readyz', '/metrics']) log.request({ ...line, path });
  expect(lines).toEqual([]);
});

const signed = createTokenSigner([{ id: 'k1', secret: Buffer.alloc(32, 7) }], () => 0).sign(
  34n,
  { purpose: 'token', resource: 'a' },
  99,
);
const secrets: readonly (readonly [string, string])[] = [
  ['an API key', 'Bearer hunter2'],
  ['two of them', 'bearer hunter2, Bearer hunter2'],
  ['a password in a URL', 'connect redis://user:hunter2@h:1 failed'],
  ['a password with an @ in it', 'postgres://u:hun@hunter2@h/d'],
  ['Basic credentials', 'Basic hunter2=='],
  ['a signature of AWS', 'AWS4-HMAC-SHA256 Credential=x, Signature=hunter2'],
  ['a JSON Web Token', 'eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.hunter2'],
];

test.each(secrets)('%s is never written, wherever it occurs', (_, secret) => {
  const { log, lines, text } = capture();
  const error = Object.assign(new Error(`said ${secret}`, { cause: new TypeError(secret) }), {
    code: secret,
    $response: { headers: { authorization: secret } },
    config: { password: secret },
  });
  log.request({
    ...line,
    path: `/v1/${secret}`,
    resource: secret,
    caller: secret,
    status: 500,
    error,
  });
  log.error(secret, error, { address: secret });
  log.warn(secret, { address: secret });
  log.info(secret, { address: secret });
  log.error('thrown', secret);
  expect(lines).toHaveLength(5);
  expect(text()).not.toContain('hunter2');
  expect(text()).toContain('***');
});

test('the number of a signed token is written, and its signature is not', () => {
  const { log, lines, text } = capture();
  log.info(`presented ${signed}`, { token: signed });
  expect(lines).toMatchObject([{ token: '34.***', msg: 'presented 34.***' }]);
  expect(text()).not.toContain(signed.split('.').at(-1));
});

test('a secret at the end of the written text is not cut in two and missed', () => {
  for (let before = 2_000; before < 2_060; before++) {
    const { log, text } = capture();
    log.info('a', { address: `${'x'.repeat(before)} ${signed}` });
    expect(text()).not.toContain(signed.slice(-43, -30));
  }
});

test('hostile paths cost no time and little space, and add no line', () => {
  for (const piece of [
    'eyJ-',
    'eyJa.',
    '://',
    ':// @',
    'Bearer ',
    '1.a.1.',
    '\n{"level":"error"}',
    '\u2028',
  ]) {
    const { log, lines, text } = capture();
    const start = performance.now();
    log.request({ ...line, path: piece.repeat(100_000) });
    expect(performance.now() - start).toBeLessThan(500);
    expect(lines).toHaveLength(1);
    expect(text().length).toBeLessThan(15_000);
  }
});

test('a malformed traceparent is left out', () => {
  const { log, lines } = capture();
  for (const traceparent of ['', 'x', '00-0-0-0', `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01, x`])
    log.request({ ...line, traceparent });
  for (const one of lines) expect(one).not.toHaveProperty('traceparent');
  expect(lines).toHaveLength(4);
});

test('an error is logged with its causes, and a cycle of causes ends', () => {
  const { log, lines } = capture();
  const error = new Error('outer', { cause: new Error('inner') });
  (error.cause as Error).cause = error;
  log.error('failed', error);
  expect(lines).toMatchObject([
    {
      level: 'error',
      error: { message: 'outer', stack: expect.any(String), cause: { message: 'inner' } },
    },
  ]);
});
