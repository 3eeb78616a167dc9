import { checkName } from '@fenced/client/protocol/path';
import type { ProblemCode } from '@fenced/client/protocol/problem-codes';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import type { Answer } from '../answer.js';
import { jsonOf } from '../bodies.js';
import type { Exchange, Route } from '../exchange.js';
import { type Message, ownMessage } from '../message.js';
import { Problem } from '../problem.js';
import { problemOf } from '../problem-of.js';
import type { Services } from '../services.js';
import {
  headersOf,
  INSTRUCTIONS,
  LEASE_TOOLS,
  OBJECT_TOOLS,
  RECORD_TOOLS,
  STORE_TOOLS,
  type Tool,
} from './mcp-tools.js';

/** The agent's next step after a problem. The detail of other problems names it already. */
const ADVICE: Partial<Record<ProblemCode, string>> = {
  'stale-token':
    'A later holder has written. Do not write with this token again: acquire the lease anew, read the value again with your new token, and decide again.',
  'lease-lost':
    'Acquire the lease anew, and read the value again with your new token before you write.',
  'precondition-failed': 'Read the value again with your token, and decide again.',
  held: 'Try again after retryAfterMs, or call acquire_lease with waitMs.',
  'token-required': 'Call acquire_lease, and pass its token.',
  'invalid-token': 'Pass the whole token that acquire_lease returned for this resource.',
  'wrong-lease': 'Acquire the lease that is named, and pass its token.',
  'not-found': 'Nothing is stored there yet: write the first version.',
  'outcome-unknown':
    'Call settle_write with writeId to see if the write was applied. Writing the same again with the same token is safe.',
  unauthenticated: 'The operator must give this client a key: Authorization: Bearer KEY.',
  forbidden: 'Ask the operator of the gateway for this right.',
};

/**
 * The tools of agents, as an MCP server without sessions. Each call of a tool runs a route of this
 * gateway in this process, for the same caller. So rights, limits, log and metrics are the same,
 * and nothing depends on a connection of the gateway to itself.
 */
export function mcpRoute(services: Services, routes: readonly Route[]): Route {
  const tools = {
    ...LEASE_TOOLS,
    ...(services.objects && OBJECT_TOOLS),
    ...(services.records && RECORD_TOOLS),
    ...((services.objects || services.records) && STORE_TOOLS),
  };
  const byName = new Map(routes.map((route) => [route.operation.operationId ?? '', route]));
  const running: Running = new Map();
  return {
    method: 'post',
    path: '/mcp',
    verb: 'any',
    resource: () => 'mcp',
    operation: { responses: {} },
    handle: (exchange) => handle(services, exchange, { tools, routes: byName, running }),
  };
}

/** Calls that run, by caller, session and id. */
type Running = Map<string, AbortController>;

interface Agents {
  readonly tools: Readonly<Record<string, Tool>>;
  readonly routes: ReadonlyMap<string, Route>;
  readonly running: Running;
}

/** Ties a cancellation to its call, for agents of the protocol before 2026-07-28. */
const SESSION = 'Mcp-Session-Id';

async function handle(services: Services, exchange: Exchange, agents: Agents): Promise<Answer> {
  const { message, deadline } = exchange;
  // Against DNS rebinding: a web page could reach this host under a domain name of its author.
  if (message.get('origin') !== undefined)
    throw new Problem('forbidden', 'an agent sends no Origin: browsers may not call tools');
  const parsedBody = await jsonOf(exchange, services, z.unknown());
  // The protocol has no batches since its revision 2025-06-18. One request with many calls would
  // get around the rate and the limit of running requests.
  if (Array.isArray(parsedBody))
    throw new Problem('invalid-request', 'send one message in a request, not a batch');
  // The tool's own call has a deadline too, which is earlier. So its answer comes first.
  deadline.restart(services.limits.waitMsMax);
  const { method, id, params } = Object(parsedBody);
  if (method === 'notifications/cancelled')
    agents.running.get(keyOf(exchange, Object(params).requestId))?.abort(new Error('cancelled'));
  const cancelled = new AbortController();
  const key = keyOf(exchange, id);
  if (method === 'tools/call' && message.get(SESSION)) agents.running.set(key, cancelled);
  const signal = AbortSignal.any([exchange.signal, cancelled.signal]);
  const handler = createMcpHandler(() => serverOf(services, exchange, agents, signal), {
    maxSubscriptions: 0,
  });
  exchange.signal.addEventListener('abort', () => void handler.close(), { once: true });
  try {
    const request = webRequestOf(message, exchange.signal);
    const { status, headers, ...answer } = await handler.fetch(request, { parsedBody }).then(read);
    // A session has no state here. It only tells the calls of one agent from those of another.
    const session = method === 'initialize' && { [SESSION]: services.runtime.uniqueId() };
    return { ...answer, status, headers: { ...headers, ...session } };
  } finally {
    if (agents.running.get(key) === cancelled) agents.running.delete(key);
  }
}

/**
 * Names a call. Since 2026-07-28, an agent cancels by closing its connection. Before, it sends
 * another request with the id of the call. Ids are small numbers, so those of two agents with one
 * key are the same. The random session keeps them apart, and nobody cancels a call without it.
 */
function keyOf({ caller, message }: Exchange, id: unknown): string {
  return JSON.stringify([caller.name, message.get(SESSION), id]);
}

async function read(answer: Response): Promise<Answer> {
  const body = Buffer.from(await answer.arrayBuffer());
  const headers = { ...Object.fromEntries(answer.headers), 'Cache-Control': 'no-store' };
  return { status: answer.status, headers, body };
}

/** The request as the MCP library takes it, which gets the body separately. */
function webRequestOf({ headersDistinct }: Message, signal: AbortSignal): Request {
  const headers = Object.entries(headersDistinct).map(([name, values = []]) => [
    name,
    values.join(', '),
  ]);
  return new Request('http://gateway/mcp', {
    method: 'POST',
    headers: Object.fromEntries(headers),
    signal,
  });
}

function serverOf(
  services: Services,
  exchange: Exchange,
  { tools, routes }: Agents,
  signal: AbortSignal,
): McpServer {
  // The tools never change, so clients need not listen for changes. To listen would keep a request
  // open.
  const options = { capabilities: { tools: { listChanged: false } }, instructions: INSTRUCTIONS };
  const server = new McpServer({ name: 'fenced', version: '1' }, options);
  for (const [name, tool] of Object.entries(tools)) {
    const { description, input, output, annotations } = tool;
    const about = {
      description,
      inputSchema: input,
      outputSchema: output,
      annotations: { ...annotations, openWorldHint: false },
    };
    server.registerTool(name, about, async (given) => {
      try {
        const structuredContent = await ask(services, exchange, routes, tool, given, signal);
        return { content: [textOf(structuredContent)], structuredContent };
      } catch (error) {
        const problem = problemOf(error);
        const advice = ADVICE[problem.code];
        const facts = { code: problem.code, advice, ...problem.document() };
        return { isError: true, content: [textOf(facts)] };
      }
    });
  }
  return server;
}

function textOf(value: object): { type: 'text'; text: string } {
  return { type: 'text', text: JSON.stringify(value) };
}

/** Runs the operation of a tool. @returns its result, by the names of the tool's output */
async function ask(
  { limits }: Services,
  exchange: Exchange,
  routes: Agents['routes'],
  tool: Tool,
  given: Record<string, unknown>,
  signal: AbortSignal,
): Promise<Record<string, unknown>> {
  const route = routes.get(tool.operation(given));
  if (route === undefined) throw new Error('the tool has no route');
  const call = tool.call(given);
  // Over HTTP, the path and the header would be checked.
  for (const [parameter, name] of Object.entries(call.names)) {
    checkName(name);
    if (route.path.includes(`:${parameter}`) && name.includes('/'))
      throw new Problem('invalid-path', `${parameter} may not have a slash`);
  }
  if (call.resource !== undefined) checkName(call.resource);
  const { json, text } = call;
  if (text?.isWellFormed() === false)
    throw new Problem('invalid-request', 'text has half a surrogate pair, which is no character');
  const body = json === undefined ? text : JSON.stringify(json);
  const message = ownMessage(
    route.method.toUpperCase(),
    headersOf(call),
    body === undefined ? undefined : Buffer.from(body),
  );
  return exchange.ask({ route, names: call.names, message, signal }, async (answer) => {
    const content = await contentOf(answer, limits.recordBytesMax);
    if (tool.body === undefined) return JSON.parse(content) as Record<string, unknown>;
    const { headers } = answer;
    return {
      [tool.body]: tool.body === 'text' ? content : JSON.parse(content),
      version: headers.ETag?.slice(1, -1),
      token: headers['Fencing-Token'],
      writeId: headers['Fencing-Write-Id'],
    };
  });
}

/** @throws {Problem} the value is too large, or no text */
async function contentOf({ body, release }: Answer, bytesMax: number): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const piece of body instanceof Uint8Array ? [body] : (body ?? [])) {
      bytes += piece.length;
      if (bytes > bytesMax)
        throw new Problem('body-too-large', `agents may read at most ${bytesMax} bytes`);
      pieces.push(piece);
    }
  } finally {
    release?.();
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(pieces));
  } catch {
    throw new Problem('unsupported', 'the object is no text');
  }
}
