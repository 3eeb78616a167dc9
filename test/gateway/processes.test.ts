import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { Readable } from 'node:stream';
import { json, text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { TcpProxy } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  BEFORE_THE_WRITE,
  configFile,
  type GatewayProcess,
  standStill,
  startBehindProxies,
  startGateway,
} from './harness/process.js';
import { acquire, GatewayWorld, inPath, post, problemOf, until } from './harness/world.js';

let world: GatewayWorld;
const parts = new AsyncDisposableStack();
let config: string;
/** A second gateway, which no test disturbs. */
let other: GatewayProcess;

beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
  config = await configFile(world, parts);
  other = await startGateway(config);
  parts.use(other.process);
});

afterAll(() => parts.disposeAsync());

function write(url: string, path: string, token: string, body: string): Promise<Response> {
  const headers = { 'Content-Type': 'application/json', 'Fencing-Token': token };
  return fetch(url + path, { method: 'PUT', headers, body });
}

test('a gateway that is paused between check and write cannot overwrite the next holder', async () => {
  const name = world.newName();
  const path = `/v1/objects/${inPath(name)}`;
  const slow = await startGateway(config, { stopAt: BEFORE_THE_WRITE });
  await using _slow = slow.process;
  const early = await acquire(slow.url, name, { ttlMs: 1_000 });
  const late = write(slow.url, path, early.token, '"early"');
  await slow.process.reachedStop();
  await slow.process.pause();

  const next = await acquire(other.url, name, { waitMs: 10_000 });
  expect((await write(other.url, path, next.token, '"late"')).status).toBe(200);
  await slow.process.wake();
  const refused = await late;
  expect(await problemOf(refused)).toMatchObject({
    type: 'urn:fenced:problem:stale-token',
    presented: early.token,
    highest: next.token,
  });
  expect(await (await fetch(slow.url + path)).json()).toBe('late');
});

test('a write that the network delayed cannot overwrite the next holder', async () => {
  const { hostname, port } = new URL(world.postgres.url);
  await using proxy = await TcpProxy.start({ host: hostname, port: Number(port) });
  const postgres = new URL(world.postgres.url);
  postgres.host = `${proxy.host}:${proxy.port}`;
  await using own = new AsyncDisposableStack();
  const addresses = { ...world.addresses, postgres: postgres.href };
  const slow = await startGateway(await configFile(world, own, addresses));
  await using _slow = slow.process;
  const path = '/v1/records/kept/1';
  expect((await fetch(slow.url + path)).status).toBe(404);
  const early = await acquire(slow.url, 'kept/1', { ttlMs: 500 });
  proxy.hold('toServer');
  const late = write(slow.url, path, early.token, '"early"');
  await proxy.untilHeld('toServer');
  const next = await acquire(other.url, 'kept/1', { waitMs: 10_000 });
  expect((await write(other.url, path, next.token, '"late"')).status).toBe(200);
  proxy.release('toServer');
  expect(await problemOf(await late)).toMatchObject({ type: 'urn:fenced:problem:stale-token' });
  expect(await (await fetch(other.url + path)).json()).toBe('late');
});

test('leases outlive the gateway that granted them, killed or shut down', async () => {
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const name = world.newName();
    const first = await startGateway(config);
    const lease = await acquire(first.url, name, { ttlMs: 20_000 });
    const exit = await first.process.kill(signal);
    if (signal === 'SIGTERM') expect(exit).toMatchObject({ code: 0 });
    const held = await post(`${other.url}/v1/leases/${inPath(name)}`, { ttlMs: 1_000 });
    expect(held.status).toBe(409);
    const address = `${other.url}/v1/leases/${inPath(name)}/${lease.leaseId}`;
    expect((await post(address, { ttlMs: 20_000 }, 'PATCH')).status).toBe(200);
    const released = await fetch(address, { method: 'DELETE' });
    expect(await released.json()).toMatchObject({ outcome: 'released' });
  }
});

test('SIGTERM: readiness fails at once, requests finish, waits for leases end, and nothing stays open', async () => {
  const gateway = await startGateway(config);
  await using _gateway = gateway.process;
  const name = world.newName();
  await acquire(gateway.url, name, { ttlMs: 30_000 });
  const waiting = post(`${gateway.url}/v1/leases/${inPath(name)}`, {
    ttlMs: 1_000,
    waitMs: 20_000,
  });
  const upload = request(`${gateway.url}/v1/objects/${inPath(name)}`, {
    method: 'PUT',
    headers: { 'Fencing-Token': '1', 'Content-Length': 6, Expect: '100-continue' },
  });
  upload.flushHeaders();
  await once(upload, 'continue');
  expect((await fetch(`${gateway.url}/livez`)).status).toBe(200);
  upload.write('abc');
  const ended = gateway.process.kill('SIGTERM');
  const refused = await waiting;
  expect(refused.headers.get('connection')).toBe('close');
  expect(await problemOf(refused)).toMatchObject({
    type: 'urn:fenced:problem:shutting-down',
    status: 503,
  });
  await until(() => gateway.log.some(({ msg }) => msg === 'shutting down'));
  const answered = once(upload, 'response');
  upload.end('def');
  const [response] = await answered;
  expect(response.statusCode).toBe(200);
  response.resume();
  expect(await ended).toMatchObject({ code: 0 });
  expect(await (await fetch(`${other.url}/v1/objects/${inPath(name)}`)).text()).toBe('abcdef');
});

test('SIGTERM: a load balancer that has not noticed yet loses no request within the delay', async () => {
  const statusOf = async (url: string, method: string, path: string, body?: object) => {
    // Each request has a connection of its own, as after a change of the balancer's targets.
    const sent = request(url + path, {
      agent: false,
      method,
      headers: { 'Content-Type': 'application/json', 'Fencing-Token': '9' },
    });
    sent.end(body && JSON.stringify(body));
    const answered = once(sent, 'response') as Promise<[IncomingMessage]>;
    const [response] = await answered.catch((error: NodeJS.ErrnoException) => [error] as const);
    if (response instanceof Error) return response.code;
    response.resume();
    return `${response.statusCode} ${response.headers.connection}`;
  };
  /** The outcomes of requests that the balancer still sends to the gateway that ends. */
  const rollout = async (drainDelayMs: number): Promise<readonly (string | undefined)[]> => {
    await using own = new AsyncDisposableStack();
    const limits = { drainDelayMs, graceMs: 3_000 };
    const gateway = await startGateway(await configFile(world, own, world.addresses, limits));
    own.use(gateway.process);
    const ended = gateway.process.kill('SIGTERM');
    await until(() => gateway.log.some(({ msg }) => msg === 'shutting down'));
    const kept = ['PUT', '/v1/records/rollout/1', { of: 'the gateway that ends' }] as const;
    const leases = `/v1/leases/${inPath(world.newName())}`;
    const outcomes = [
      await statusOf(gateway.url, ...kept),
      await statusOf(gateway.url, 'POST', leases, { ttlMs: 100 }),
      await statusOf(gateway.url, 'POST', leases, { ttlMs: 100, waitMs: 1_000 }),
    ];
    const isReady = (await fetch(`${other.url}/readyz`)).ok;
    expect([isReady, (await ended).code]).toEqual([true, 0]);
    return outcomes;
  };
  expect(await rollout(3_000)).toEqual(['200 close', '201 close', '201 close']);
  expect(new Set(await rollout(0))).toEqual(new Set(['ECONNREFUSED']));
});

test('SIGTERM: an upload that takes longer than the grace time is refused, with the reason', async () => {
  await using own = new AsyncDisposableStack();
  const gateway = await startGateway(
    await configFile(world, own, world.addresses, { graceMs: 300 }),
  );
  await using _gateway = gateway.process;
  const upload = request(`${gateway.url}/v1/objects/endless`, {
    method: 'PUT',
    headers: { 'Fencing-Token': '1', 'Content-Length': 6, Expect: '100-continue' },
  });
  upload.flushHeaders();
  await once(upload, 'continue');
  const answered = once(upload, 'response') as Promise<[IncomingMessage]>;
  expect(await gateway.process.kill('SIGTERM')).toMatchObject({ code: 1 });
  const [response] = await answered;
  expect(response.statusCode).toBe(503);
  expect(await json(response)).toMatchObject({ type: 'urn:fenced:problem:shutting-down' });
  upload.destroy();
  expect((await fetch(`${other.url}/v1/objects/endless`)).status).toBe(404);
});

test.each([
  ['SIGTERM', 'SIGTERM'],
  ['SIGTERM', 'SIGINT'],
  ['SIGINT', 'SIGTERM'],
] as const)(
  '%s lets an upload end, and %s after it ends the process at once',
  async (first, second) => {
    await using own = new AsyncDisposableStack();
    const limits = { graceMs: 600_000 };
    const gateway = await startGateway(await configFile(world, own, world.addresses, limits));
    await using _gateway = gateway.process;
    const upload = request(`${gateway.url}/v1/objects/${inPath(world.newName())}`, {
      method: 'PUT',
      headers: { 'Fencing-Token': '1', 'Content-Length': 6, Expect: '100-continue' },
    });
    upload.flushHeaders();
    await once(upload, 'continue');
    const broken = once(upload, 'error');
    void gateway.process.kill(first);
    await until(() => gateway.log.some(({ msg }) => msg === 'shutting down'));
    expect(await gateway.process.kill(second)).toMatchObject({ code: null, signal: second });
    await broken;
  },
);

test.each([
  ['postgres', 1],
  ['s3', 0],
  ['redis', 0],
] as const)('SIGTERM ends the process while %s stands still, with code %i', async (name, code) => {
  await using own = new AsyncDisposableStack();
  const { gateway, proxies } = await startBehindProxies(world, own, { graceMs: 300 });
  expect((await write(gateway.url, `/v1/objects/${inPath(world.newName())}`, '1', '1')).ok).toBe(
    true,
  );
  expect((await write(gateway.url, '/v1/records/still/1', '1', '1')).ok).toBe(true);
  standStill(proxies[name]);
  expect(await gateway.process.kill('SIGTERM')).toMatchObject({ code });
  const left = gateway.log.find(({ msg }) => msg === 'shut down with connections open');
  expect(left?.level).toBe(code === 0 ? undefined : 'error');
});

test.each([
  ['postgres', '/v1/records/still/2'],
  ['s3', '/v1/objects/still'],
] as const)(
  'SIGTERM ends the process while a write waits for %s, and reports an unknown outcome',
  async (name, path) => {
    await using own = new AsyncDisposableStack();
    const { gateway, proxies } = await startBehindProxies(world, own, { graceMs: 300 });
    expect((await write(gateway.url, path, '1', '1')).ok).toBe(true);
    standStill(proxies[name]);
    const waiting = write(gateway.url, path, '2', '2');
    await proxies[name][0]?.untilHeld('toServer');
    expect(await gateway.process.kill('SIGTERM')).toMatchObject({ code: 1 });
    const answer = await waiting;
    expect(answer.status).toBe(504);
    expect(await answer.json()).toMatchObject({
      type: 'urn:fenced:problem:outcome-unknown',
      writeId: expect.any(String),
      settle: expect.stringMatching(/^\/v1\/writes\//),
    });
  },
);

const run = promisify(execFile);
const bin = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));

test('--check prints every mistake, and ends', async () => {
  // Kubernetes sets such variables for a service named fenced-gateway-eu.
  const service = {
    FENCED_GATEWAY_EU_SERVICE_HOST: '10.0.0.1',
    FENCED_GATEWAY_EU_PORT: 'tcp://10.0.0.1:80',
    FENCED_GATEWAY_EU_PORT_80_TCP_ADDR: '10.0.0.1',
  };
  const good = await run(process.execPath, [bin, 'gateway', '--check', '--config', config], {
    env: { ...process.env, ...service },
  });
  expect(good.stdout).toMatch(/^warning: no credentials[\s\S]*the configuration can be used\n$/);
  const env = {
    ...process.env,
    FENCED_GATEWAY_LISTEN_PORT: '-1',
    FENCED_GATEWAY_LIMITS_GRACE_MS: 'x',
  };
  const bad = run(process.execPath, [bin, 'gateway', '--check', '--config', config], { env });
  await expect(bad).rejects.toMatchObject({
    code: 78,
    stderr: expect.stringMatching(/listen\.port[\s\S]*limits\.graceMs/),
  });
  const port = new URL(other.url).port;
  const second = run(process.execPath, [bin, 'gateway', '--config', config], {
    env: { ...process.env, FENCED_GATEWAY_LISTEN_PORT: port },
  });
  await expect(second).rejects.toMatchObject({
    code: 1,
    stdout: expect.stringContaining('EADDRINUSE'),
  });
});

const STREAM_MIB = Number(process.env.FENCED_STREAM_MIB ?? 48);

test(`${STREAM_MIB} MiB pass through in pieces, both ways`, async () => {
  const gateway = await startGateway(config);
  await using _gateway = gateway.process;
  const address = `${gateway.url}/v1/objects/${inPath(world.newName())}`;
  const bytes = STREAM_MIB * 2 ** 20;
  const sent = createHash('sha256');
  const piece = randomBytes(2 ** 20);
  const source = async function* () {
    for (let i = 0; i < STREAM_MIB; i++) {
      piece.writeUInt32BE(i);
      sent.update(piece);
      yield Buffer.from(piece);
    }
  };
  await put(address, '1', Readable.from(['warm']), 4);
  const beforeMib = await mostMemoryMib(gateway.process.pid);
  await put(address, '1', Readable.from(source()), bytes);
  const read = await fetch(address);
  expect(read.headers.get('content-length')).toBe(String(bytes));
  const received = createHash('sha256');
  for await (const chunk of read.body ?? []) received.update(chunk);
  expect(received.digest('hex')).toBe(sent.digest('hex'));
  const last = bytes - 2 ** 20;
  const range = await fetch(address, { headers: { Range: `bytes=${last}-${last + 3}` } });
  expect(Buffer.from(await range.arrayBuffer()).readUInt32BE()).toBe(STREAM_MIB - 1);
  // Six parts of 8 MiB may be in flight; the rest is what V8 has not collected yet.
  expect((await mostMemoryMib(gateway.process.pid)) - beforeMib).toBeLessThan(300);
}, 600_000);

async function put(address: string, token: string, body: Readable, bytes: number): Promise<void> {
  const upload = request(address, {
    method: 'PUT',
    headers: { 'Fencing-Token': token, 'Content-Length': bytes },
  });
  const answered = once(upload, 'response') as Promise<[IncomingMessage]>;
  await pipeline(body, upload);
  const [response] = await answered;
  expect([response.statusCode, await text(response)]).toEqual([200, expect.any(String)]);
}

/** The most physical memory that a process ever had. */
async function mostMemoryMib(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1_024;
}
