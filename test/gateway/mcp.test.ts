import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { openCredentials } from '@fenced/gateway/credentials';
import { createMetrics } from '@fenced/gateway/metrics';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Front, GatewayWorld, post, problemOf } from './harness/world.js';

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

  async described() {
    return (await this.#client.listTools()).tools;
  }

  get instructions(): string {
    return this.#client.getInstructions() ?? '';
  }

  /** Returns the tool's answer, with `isError`: true if it is an error. */
  async call(
    name: string,
    input: Record<string, unknown>,
    signal?: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const options = signal === undefined ? {} : { signal };
    const { isError, content } = await this.#client.callTool({ name, arguments: input }, options);
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
  output(total: number): Record<string, unknown>;
}

const KINDS: readonly Kind[] = [
  {
    kind: 'record',
    name: { collection: 'invoices', id: 'a' },
    input: (total) => ({ document: { total } }),
    output: (total) => ({ document: { total } }),
  },
  {
    kind: 'object',
    name: { key: 'invoices/a' },
    input: (total) => ({ text: JSON.stringify({ total }) }),
    output: (total) => ({ text: JSON.stringify({ total }) }),
  },
];

test.each(KINDS)(
  'an agent that is late with its write of one $kind is refused as stale, and told what to do',
  async ({ kind, name, input, output }) => {
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
    expect(seen).toMatchObject({ isError: false, ...output(1), version: expect.any(String) });
    expect(await put(next, 2, second.token)).toMatchObject({ isError: false });

    expect(await put(early, 3, first.token)).toMatchObject({
      isError: true,
      code: 'stale-token',
      presented: first.token,
      highest: second.token,
      advice: expect.stringContaining('read the value again with your new token'),
    });
    expect(await read(early, {})).toMatchObject({ isError: false, ...output(2) });

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
    expect(await reader.call('read_record', record)).toMatchObject({
      document: { of: 'writer' },
    });
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
  const sets = leases.map((name) => `${name}_set`);
  const objects = ['read_object', 'write_object', 'delete_object'];
  const records = ['read_record', 'write_record', 'delete_record'];
  expect(await agent.tools()).toEqual([...leases, ...sets, ...objects, ...records, 'settle_write']);
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

test('an agent has the order of calls, the effect and the result of each tool', async () => {
  await using agent = await Agent.connect(front.url);
  expect(agent.instructions).toMatch(/acquire_lease[\s\S]*release_lease/);
  for (const { name, annotations, outputSchema, inputSchema } of await agent.described()) {
    const about = { name, ...annotations, result: outputSchema?.type, ...inputSchema };
    expect(about).toMatchObject({
      openWorldHint: false,
      readOnlyHint: name === 'settle_write',
      result: 'object',
      additionalProperties: false,
    });
    if (/^(write|delete)/.test(name)) expect(about).toMatchObject({ destructiveHint: true });
  }
});

test('an unknown argument is refused, and nothing is written', async () => {
  await using agent = await Agent.connect(front.url);
  const { token } = await agent.call('acquire_lease', { resource: 'args/1', ttlMs: 9_000 });
  const written = { collection: 'args', id: '1', document: 1, token, ifMatch: 'x' };
  const refused = agent.call('write_record', written);
  await expect(refused.then(({ isError }) => isError !== true)).rejects.toThrow();
  const read = await agent.call('read_record', { collection: 'args', id: '1' });
  expect(read).toMatchObject({ code: 'not-found' });
  const slash = { collection: 'args/1', id: '2' };
  expect(await agent.call('read_record', slash)).toMatchObject({ code: 'invalid-path' });
});

test.each(KINDS)('one $kind: only the version that was read is replaced', async (one) => {
  const { kind, input } = one;
  const name = Object.fromEntries(Object.entries(one.name).map(([key, text]) => [key, `v${text}`]));
  await using agent = await Agent.connect(front.url);
  const resource = Object.values(name).join('/');
  const { token } = await agent.call('acquire_lease', { resource, ttlMs: 20_000 });
  const put = (more: object) =>
    agent.call(`write_${kind}`, { ...name, ...input(1), token, ...more });
  const first = await put({ isNew: true });
  expect(first).toMatchObject({ isError: false });
  expect(await put({ isNew: true })).toMatchObject({ code: 'precondition-failed' });
  const { version, writeId } = await agent.call(`read_${kind}`, name);
  expect([version, writeId]).toEqual([first.version, first.writeId]);
  expect(await put({ version })).toMatchObject({ isError: false });
  expect(await put({ version })).toMatchObject({
    code: 'precondition-failed',
    advice: expect.stringContaining('Read the value again'),
  });
  expect(await agent.call('settle_write', { writeId })).toMatchObject({ isError: false, writeId });
  const removed = await agent.call(`delete_${kind}`, { ...name, token });
  expect(removed).toMatchObject({ isError: false, token });
  expect(await agent.call(`read_${kind}`, name)).toMatchObject({ code: 'not-found' });
});

test('a set of leases is taken, extended and released', async () => {
  await using agent = await Agent.connect(front.url);
  const resources = ['set/a', 'set/b'];
  const set = await agent.call('acquire_lease_set', { resources, ttlMs: 9_000 });
  expect(set).toMatchObject({ isError: false, resources });
  const of = { resources, leaseId: set.leaseId };
  expect(await agent.call('extend_lease_set', { ...of, ttlMs: 9_000 })).toMatchObject({
    tokens: set.tokens,
  });
  expect(await agent.call('release_lease_set', of)).toMatchObject({ outcome: 'released' });
});

const HEADERS = {
  'Content-Type': 'application/json',
  Accept: 'application/json, text/event-stream',
};

function toolCall(name: string, input: object, id: number = 1): object {
  return { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: input } };
}

test('a request that was accepted before the drain still runs its tool', async () => {
  const own = await world.open();
  await using _own = own;
  const resource = 'accepted/1';
  const lease = await post(`${own.url}/v1/leases/${resource}`, { ttlMs: 20_000 });
  const { token } = (await lease.json()) as { token: string };
  const record = { collection: 'accepted', id: '1', document: 'kept', token };
  const body = JSON.stringify(toolCall('write_record', record));
  const sent = request(`${own.url}/mcp`, {
    method: 'POST',
    headers: { ...HEADERS, 'Content-Length': Buffer.byteLength(body), Expect: '100-continue' },
  });
  const answered = once(sent, 'response') as Promise<[IncomingMessage]>;
  sent.flushHeaders();
  await once(sent, 'continue');
  const ended = own.server.drain();
  sent.end(body);
  const [response] = await answered;
  const answer = await text(response);
  expect(answer).toContain('writeId');
  expect(answer).not.toContain('outcome-unknown');
  expect(await ended).toBe(true);
  expect(await (await fetch(`${front.url}/v1/records/accepted/1`)).json()).toBe('kept');
});

test('an agent that cancels its wait for a lease gets none', async () => {
  const metrics = createMetrics();
  await using own = await world.open({ metrics });
  await using agent = await Agent.connect(own.url);
  const resource = 'cancelled';
  const held = await agent.call('acquire_lease', { resource, ttlMs: 20_000 });
  const cancel = new AbortController();
  const input = { resource, ttlMs: 20_000, waitMs: 20_000 };
  const waiting = agent.call('acquire_lease', input, cancel.signal);
  await expect.poll(() => metrics.text()).toContain('in_use{limit="waits"} 1');
  cancel.abort();
  await expect(waiting).rejects.toThrow();
  await expect.poll(() => metrics.text()).toContain('in_use{limit="waits"} 0');
  // Since 2026-07-28, an agent cancels by closing its connection.
  const close = new AbortController();
  const body = JSON.stringify(toolCall('acquire_lease', input));
  const open = { method: 'POST', headers: HEADERS, body, signal: close.signal };
  const closed = fetch(`${own.url}/mcp`, open);
  await expect.poll(() => metrics.text()).toContain('in_use{limit="waits"} 1');
  close.abort();
  await expect(closed).rejects.toThrow();
  await expect.poll(() => metrics.text()).toContain('in_use{limit="waits"} 0');
  await agent.call('release_lease', { resource, leaseId: held.leaseId });
  const next = await agent.call('acquire_lease', { resource, ttlMs: 1_000 });
  expect(next).toMatchObject({ isError: false, resource });
});

test('each call of a tool counts once against the rate of its caller, and a batch is refused', async () => {
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
  const calls = ['b', 'c', 'd'].map((one, id) =>
    toolCall('acquire_lease', { resource: one, ttlMs: 1_000 }, id),
  );
  const batch = await post(`${own.url}/mcp`, calls);
  expect([batch.status, (await problemOf(batch)).detail]).toEqual([
    400,
    expect.stringContaining('batch'),
  ]);
  expect(own.ended.filter(({ path }) => path !== '/mcp')).toHaveLength(1);
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
