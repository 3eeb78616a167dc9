import { createHash } from 'node:crypto';
import { openCredentials } from '@fenced/gateway/credentials';
import { createMetrics } from '@fenced/gateway/metrics';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Front, GatewayWorld } from './harness/world.js';

let world: GatewayWorld;
let front: Front;

beforeAll(async () => {
  world = await GatewayWorld.start();
  front = await world.open();
});

afterAll(async () => {
  await front?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

/** One agent, as its host connects it. */
class Agent implements AsyncDisposable {
  readonly #client = new Client({ name: 'agent', version: '1' });

  static async connect(url: string, key?: string): Promise<Agent> {
    const agent = new Agent();
    const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    const transport = new StreamableHTTPClientTransport(new URL('/mcp', url), {
      requestInit: { headers },
    });
    await agent.#client.connect(transport);
    return agent;
  }

  async tools(): Promise<string[]> {
    return (await this.#client.listTools()).tools.map(({ name }) => name);
  }

  /** Returns the tool's answer, with `isError`: true if it is an error. */
  async call(name: string, input: Record<string, unknown>): Promise<Record<string, unknown>> {
    const { isError, content } = await this.#client.callTool({ name, arguments: input });
    const [{ text } = { text: '' }] = content as { text: string }[];
    return { isError: isError === true, ...JSON.parse(text) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#client.close();
  }
}

/** A kind of value, the input that names a value, and the input that writes it. */
interface Kind {
  readonly kind: string;
  readonly name: Record<string, string>;
  input(total: number): Record<string, unknown>;
}

const KINDS: readonly Kind[] = [
  {
    kind: 'record',
    name: { collection: 'invoices', id: 'a' },
    input: (total) => ({ document: { total } }),
  },
  {
    kind: 'object',
    name: { key: 'invoices/a' },
    input: (total) => ({ text: JSON.stringify({ total }) }),
  },
];

test.each(KINDS)(
  'an agent that is late with its write of one $kind is refused as stale, and told what to do',
  async ({ kind, name, input }) => {
    await using early = await Agent.connect(front.url);
    await using next = await Agent.connect(front.url);
    const resource = 'invoices/a';
    const put = (agent: Agent, total: number, token: unknown) =>
      agent.call(`write_${kind}`, { ...name, ...input(total), token });
    const read = (agent: Agent, claim: object) => agent.call(`read_${kind}`, { ...name, ...claim });

    const first = await early.call('acquire_lease', { resource, ttlMs: 1_000 });
    expect(first).toMatchObject({ isError: false, resource, token: expect.any(String) });
    expect(await put(early, 1, first.token)).toMatchObject({ isError: false });

    // The first agent thinks for longer than its lease lasts.
    const second = await next.call('acquire_lease', { resource, ttlMs: 30_000, waitMs: 10_000 });
    expect(BigInt(String(second.token))).toBeGreaterThan(BigInt(String(first.token)));
    const seen = await read(next, { token: second.token });
    expect(seen).toEqual({ isError: false, total: 1 });
    expect(await put(next, 2, second.token)).toMatchObject({ isError: false });

    expect(await put(early, 3, first.token)).toMatchObject({
      isError: true,
      code: 'stale-token',
      presented: first.token,
      highest: second.token,
      advice: expect.stringContaining('acquire the lease anew'),
    });
    expect(await read(early, {})).toEqual({ isError: false, total: 2 });

    const ofFirst = { resource, leaseId: first.leaseId };
    expect(await early.call('extend_lease', { ...ofFirst, ttlMs: 1_000 })).toMatchObject({
      isError: true,
      code: 'lease-lost',
      advice: expect.stringContaining('Acquire the lease anew'),
    });
    const ofSecond = { resource, leaseId: second.leaseId };
    const extended = await next.call('extend_lease', { ...ofSecond, ttlMs: 30_000 });
    expect(extended).toMatchObject({ isError: false, token: second.token });
    expect(await next.call('release_lease', ofSecond)).toMatchObject({ outcome: 'released' });
  },
);

describe('with credentials', () => {
  const keyOf = (name: string, verbs: readonly ('lease' | 'read' | 'write')[]) => ({
    name,
    verbs,
    prefixes: ['leases', 'objects', 'records'],
    sha256: createHash('sha256').update(name).digest('hex'),
  });

  test('each call has the rights of its own caller', async () => {
    const credentials = openCredentials({
      keys: [keyOf('writer', ['lease', 'read', 'write']), keyOf('reader', ['read'])],
    });
    await using guarded = await world.open({ credentials });
    await expect(Agent.connect(guarded.url)).rejects.toThrow();
    await expect(Agent.connect(guarded.url, 'unknown')).rejects.toThrow();
    await using writer = await Agent.connect(guarded.url, 'writer');
    await using reader = await Agent.connect(guarded.url, 'reader');
    const record = { collection: 'bills', id: '1' };
    const { token } = await writer.call('acquire_lease', { resource: 'bills/1', ttlMs: 5_000 });
    await writer.call('write_record', { ...record, document: { of: 'writer' }, token });
    expect(await reader.call('read_record', record)).toEqual({ isError: false, of: 'writer' });
    const forged = await reader.call('write_record', { ...record, document: 1, token });
    expect(forged).toMatchObject({ isError: true, code: 'forbidden', verb: 'write' });
    const callers = guarded.ended.map(({ caller, route }) => `${caller} ${route}`);
    expect(callers).toContain('reader /mcp');
    expect(callers).toContain('reader /v1/records/{collection}/{id}');
  });
});

test('a gateway without a store offers no tools for it, and prints no warning', async () => {
  const printed = vi.spyOn(console, 'warn');
  onTestFinished(() => printed.mockRestore());
  await using agent = await Agent.connect(front.url);
  const leases = ['acquire_lease', 'extend_lease', 'release_lease'];
  const values = ['read_object', 'write_object', 'read_record', 'write_record'];
  expect(await agent.tools()).toEqual([...leases, ...values]);
  expect(printed).not.toHaveBeenCalled();
});

test('a held lock and an invalid name are errors of the tool, with code and advice', async () => {
  await using agent = await Agent.connect(front.url);
  const held = { resource: 'a', ttlMs: 5_000 };
  await agent.call('acquire_lease', held);
  expect(await agent.call('acquire_lease', held)).toMatchObject({
    isError: true,
    code: 'held',
    // The gateway does not show the answers of its lock nodes to agents.
    detail: 'somebody else holds the lock, and waitMs=0 does not wait',
    advice: expect.stringContaining('waitMs'),
  });
  // In a URL, `..` would be resolved, and the request would reach another route.
  const climbing = await agent.call('read_object', { key: '../leases/a' });
  expect(climbing).toMatchObject({ isError: true, code: 'invalid-path' });
});

test('a write whose answer breaks off has an unknown outcome', async () => {
  await using agent = await Agent.connect(front.url);
  const record = { collection: 'invoices', id: 'broken-off' };
  const resource = 'invoices/broken-off';
  const { token } = await agent.call('acquire_lease', { resource, ttlMs: 30_000 });
  const { fetch } = globalThis;
  const spied = vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    const answer = await fetch(input, init);
    if (!String(input).includes('/v1/')) return answer;
    const broken = new ReadableStream({
      pull: (controller) => controller.error(new Error('the socket was closed')),
    });
    return new Response(broken, { status: answer.status });
  });
  onTestFinished(() => spied.mockRestore());
  expect(await agent.call('write_record', { ...record, document: 1, token })).toMatchObject({
    isError: true,
    code: 'outcome-unknown',
    advice: expect.stringContaining('Read the value'),
  });
  expect(await agent.call('read_record', record)).toMatchObject({ code: 'unavailable' });
  spied.mockRestore();
  expect(await agent.call('read_record', { ...record, token })).toMatchObject({ isError: false });
});

test('each call of a tool counts once against the rate of its caller, also in a batch', async () => {
  const taken: string[] = [];
  const take = (name: string): { ok: true } => {
    taken.push(name);
    return { ok: true };
  };
  // The client of MCP also tries GET without a key. Such requests count for its address.
  const perAddress = { take: () => ({ ok: true }) as const };
  await using own = await world.open({ rate: { perKey: { take }, perAddress } });
  await using agent = await Agent.connect(own.url);
  const lease = await agent.call('acquire_lease', { resource: 'once', ttlMs: 10_000 });
  expect(lease).toMatchObject({ isError: false });
  await expect.poll(() => own.ended.filter(({ path }) => path !== '/mcp').length).toBe(1);
  const asked = own.ended.filter(({ path, method }) => path === '/mcp' && method === 'POST');
  expect(taken).toEqual(asked.map(() => 'anybody'));
  const calls = ['b', 'c', 'd'].map((resource, id) => ({
    jsonrpc: '2.0',
    id,
    method: 'tools/call',
    params: { name: 'acquire_lease', arguments: { resource, ttlMs: 1_000 } },
  }));
  const before = taken.length;
  const batch = await fetch(`${own.url}/mcp`, {
    method: 'POST',
    body: JSON.stringify(calls),
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
    },
  });
  expect((await batch.text()).match(/leaseId/g)).toHaveLength(3);
  expect(taken.length - before).toBe(3);
  const headers = { 'Fenced-Own-Request': 'guessed' };
  await fetch(`${own.url}/v1/leases/once`, { method: 'POST', headers });
  expect(taken.length - before).toBe(4);
});

test('a tool call takes one place of requestsMax, and none while it waits for a lease', async () => {
  const metrics = createMetrics();
  await using own = await world.open({ limits: { requestsMax: 1 }, metrics });
  await using early = await Agent.connect(own.url);
  await using next = await Agent.connect(own.url);
  const resource = 'one place';
  const { leaseId } = await early.call('acquire_lease', { resource, ttlMs: 20_000 });
  const waiting = next.call('acquire_lease', { resource, ttlMs: 5_000, waitMs: 10_000 });
  await expect.poll(() => metrics.text()).toContain('in_use{limit="waits"} 1');
  const released = await early.call('release_lease', { resource, leaseId });
  expect(released).toMatchObject({ outcome: 'released' });
  expect(await waiting).toMatchObject({ isError: false, resource });
});

test('an agent that listens for changes of the tools is refused at once', async () => {
  const field = 'io.modelcontextprotocol';
  const _meta = {
    [`${field}/protocolVersion`]: '2026-07-28',
    [`${field}/clientCapabilities`]: {},
    [`${field}/clientInfo`]: { name: 'agent', version: '1' },
  };
  const method = 'subscriptions/listen';
  const params = { _meta, notifications: { toolsListChanged: true } };
  const answer = await fetch(`${front.url}/mcp`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': '2026-07-28',
      'MCP-Method': method,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  expect(await answer.json()).toMatchObject({ error: { message: 'Subscription limit reached' } });
});

test('a browser is refused, and so is every method but POST', async () => {
  const request = { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } };
  const headers = { ...request.headers, Origin: 'https://example.org' };
  expect((await fetch(`${front.url}/mcp`, { ...request, headers })).status).toBe(403);
  expect((await fetch(`${front.url}/mcp`)).status).toBe(405);
  expect((await fetch(`${front.url}/mcp`, { ...request, body: 'no JSON' })).status).toBe(400);
});
