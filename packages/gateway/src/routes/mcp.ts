import { encodedPath, segmentsOf } from '@fenced/client/protocol/path';
import { codeIn, type ProblemCode } from '@fenced/client/protocol/problem-codes';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { jsonOf } from '../bodies.js';
import { type Exchange, OWN_REQUEST, type Route } from '../exchange.js';
import { Problem } from '../problem.js';
import { problemOf } from '../problem-of.js';
import type { Services } from '../services.js';

const RESOURCE = z.string().describe('The locked resource, such as invoice/42.');
const LEASE_ID = z.string().describe('leaseId of the latest answer for the lease.');
const TTL_MS = z.number().describe('Milliseconds for which the lease lasts.');
const KEY = z.string().describe('The key of the object.');
const COLLECTION = z.string().describe('The collection of the record.');
const ID = z.string().describe('The id of the record.');
const TOKEN = z.string().describe('The token of your lease, whole, as acquire_lease returned it.');
const GUARD = RESOURCE.optional().describe(
  'The resource of the lease, if it differs from the key, or from collection/id.',
);
const CLAIM = TOKEN.optional().describe(
  'The token of your lease, if you will write a value computed from this one. Writes of earlier holders are refused from then on.',
);

/** One call of the gateway's HTTP interface. */
interface Call {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The part after `/v1/`, not percent-encoded. */
  readonly path: string;
  readonly token?: string | undefined;
  /** The resource of the token's lease. */
  readonly guard?: string | undefined;
  readonly json?: unknown;
  readonly text?: string;
}

interface Tool<Input extends z.ZodObject = z.ZodObject> {
  readonly description: string;
  readonly input: Input;
  call(input: z.infer<Input>): Call;
}

function tool<Input extends z.ZodObject>(
  description: string,
  input: Input,
  call: Tool<Input>['call'],
): Tool {
  return { description, input, call } as Tool;
}

const LEASE_TOOLS = {
  acquire_lease: tool(
    'Takes the lock on a resource for ttlMs milliseconds. Returns its token, which every write needs, and its leaseId.',
    z.object({
      resource: RESOURCE,
      ttlMs: TTL_MS,
      waitMs: z
        .number()
        .optional()
        .describe('Milliseconds to wait if another caller holds the lock.'),
    }),
    ({ resource, ...json }) => ({ method: 'POST', path: `leases/${resource}`, json }),
  ),
  extend_lease: tool(
    'Lets a lease last at least ttlMs from now on, with the same token. Call it before remainingMs are over.',
    z.object({ resource: RESOURCE, leaseId: LEASE_ID, ttlMs: TTL_MS }),
    ({ resource, leaseId, ttlMs }) => ({
      method: 'PATCH',
      path: `leases/${resource}/${leaseId}`,
      json: { ttlMs },
    }),
  ),
  release_lease: tool(
    'Releases a lease when the work is done, so that others need not wait for its end.',
    z.object({ resource: RESOURCE, leaseId: LEASE_ID }),
    ({ resource, leaseId }) => ({ method: 'DELETE', path: `leases/${resource}/${leaseId}` }),
  ),
};

const OBJECT_TOOLS = {
  read_object: tool(
    'Reads an object as text.',
    z.object({ key: KEY, token: CLAIM, resource: GUARD }),
    ({ key, ...rest }) => read(`objects/${key}`, rest),
  ),
  write_object: tool(
    'Replaces an object. The write is refused if a later holder of the lock has written or claimed the object.',
    z.object({ key: KEY, text: z.string(), token: TOKEN, resource: GUARD }),
    ({ key, text, token, resource: guard }) => ({
      method: 'PUT',
      path: `objects/${key}`,
      text,
      token,
      guard,
    }),
  ),
};

const RECORD_TOOLS = {
  read_record: tool(
    'Reads a JSON document.',
    z.object({ collection: COLLECTION, id: ID, token: CLAIM, resource: GUARD }),
    ({ collection, id, ...rest }) => read(`records/${collection}/${id}`, rest),
  ),
  write_record: tool(
    'Replaces a JSON document. The write is refused if a later holder of the lock has written or claimed the document.',
    z.object({ collection: COLLECTION, id: ID, document: z.json(), token: TOKEN, resource: GUARD }),
    ({ collection, id, document: json, token, resource: guard }) => ({
      method: 'PUT',
      path: `records/${collection}/${id}`,
      json,
      token,
      guard,
    }),
  ),
};

function read(
  path: string,
  { token, resource: guard }: { token?: string | undefined; resource?: string | undefined },
): Call {
  return token === undefined
    ? { method: 'GET', path }
    : { method: 'POST', path: `${path}/claim-and-get`, token, guard };
}

/** The agent's next step after a problem. The detail of other problems names it already. */
const ADVICE: Partial<Record<ProblemCode, string>> = {
  'stale-token':
    'A later holder has written. Do not write with this token again: acquire the lease anew, read the value, and decide again.',
  'lease-lost': 'Acquire the lease anew, and read again before you write.',
  held: 'Try again after retryAfterMs, or call acquire_lease with waitMs.',
  'token-required': 'Call acquire_lease, and pass its token.',
  'invalid-token': 'Pass the whole token that acquire_lease returned for this resource.',
  'wrong-lease': 'Acquire the lease that is named, and pass its token.',
  'not-found': 'Nothing is stored there yet: write the first version.',
  'outcome-unknown':
    'Read the value to see if the write was applied. Writing the same again with the same token is safe.',
  unauthenticated: 'The operator must give this client a key: Authorization: Bearer KEY.',
  forbidden: 'Ask the operator of the gateway for this right.',
};

/**
 * The tools of agents, as an MCP server without sessions. Each call of a tool is a request of the
 * same caller to this gateway. So credentials, rights, limits, log and metrics are the same.
 */
export function mcpRoute(services: Services): Route {
  const tools = {
    ...LEASE_TOOLS,
    ...(services.objects && OBJECT_TOOLS),
    ...(services.records && RECORD_TOOLS),
  };
  return {
    method: 'post',
    path: '/mcp',
    verb: 'any',
    resource: () => 'mcp',
    operation: { responses: {} },
    handle: (exchange) => handle(services, exchange, tools),
  };
}

async function handle(
  services: Services,
  exchange: Exchange,
  tools: Readonly<Record<string, Tool>>,
): Promise<void> {
  const { request, response, signal, deadline } = exchange;
  // Against DNS rebinding: a web page could reach this host under a domain name of its author.
  if (request.get('origin') !== undefined)
    throw new Problem('forbidden', 'an agent sends no Origin: browsers may not call tools');
  const parsedBody = await jsonOf(exchange, services, z.unknown());
  // The tool's own request to this gateway has a deadline too, which is earlier. So its answer
  // comes first.
  deadline.restart(services.limits.waitMsMax);
  const { ownRequests, runtime } = services;
  // The rate has counted this MCP request, so its first tool call is not counted again. Each
  // further call of a batch is.
  const counted = runtime.uniqueId();
  ownRequests.add(counted);
  response.once('close', () => ownRequests.delete(counted));
  const handler = createMcpHandler(() => serverOf(services, exchange, tools, counted), {
    maxSubscriptions: 0,
  });
  signal.addEventListener('abort', () => void handler.close(), { once: true });
  await send(response, await handler.fetch(webRequestOf(exchange), { parsedBody }));
}

/** The request as the MCP library takes it, which gets the body separately. */
function webRequestOf({ request, signal }: Exchange): Request {
  const headers = Object.entries(request.headersDistinct).map(([name, values = []]) => [
    name,
    values.join(', '),
  ]);
  return new Request(new URL(request.url, 'http://gateway'), {
    method: 'POST',
    headers: Object.fromEntries(headers),
    signal,
  });
}

async function send(response: Exchange['response'], answer: Response): Promise<void> {
  const body = Buffer.from(await answer.arrayBuffer());
  response.status(answer.status);
  for (const [name, value] of answer.headers) response.setHeader(name, value);
  response.setHeader('Cache-Control', 'no-store');
  response.setHeader('Content-Length', body.length);
  response.end(body);
}

function serverOf(
  services: Services,
  exchange: Exchange,
  tools: Readonly<Record<string, Tool>>,
  counted: string,
): McpServer {
  // The tools never change, so clients need not listen for changes. To listen would keep a request
  // open.
  const capabilities = { tools: { listChanged: false } };
  const server = new McpServer({ name: 'fenced', version: '1' }, { capabilities });
  for (const [name, { description, input, call }] of Object.entries(tools))
    server.registerTool(name, { description, inputSchema: input }, async (given) => {
      const asked = ask(services, exchange, counted, call(given));
      const { isError, text } = await asked.catch((error) => {
        const problem = problemOf(error);
        return failed(problem.code, problem.document());
      });
      return { isError, content: [{ type: 'text', text }] };
    });
  return server;
}

interface Answer {
  readonly isError: boolean;
  readonly text: string;
}

/** Sends one request to this gateway, with the credentials of the agent. */
async function ask(
  { limits }: Services,
  exchange: Exchange,
  counted: string,
  call: Call,
): Promise<Answer> {
  const { request, signal } = exchange;
  const { method, token, guard, json, text } = call;
  const path = encodedPath(call.path);
  // Refuses segments such as `..`, which `fetch` would resolve.
  segmentsOf(`/${path}`);
  const { localAddress = '', localPort } = request.socket;
  const host = localAddress.includes(':') ? `[${localAddress}]` : localAddress;
  const authorization = request.get('authorization');
  // The request below takes its own place in the limit of running requests, so this one gives up
  // its place.
  exchange.leave();
  // If the answer is lost from here on, the write may have been applied.
  if (token !== undefined) exchange.writeId = null;
  try {
    const answer = await fetch(`http://${host}:${localPort}/v1/${path}`, {
      method,
      signal,
      body: (json === undefined ? text : JSON.stringify(json)) ?? null,
      headers: {
        [OWN_REQUEST]: counted,
        ...(authorization && { authorization }),
        ...(json !== undefined && { 'content-type': 'application/json' }),
        ...(text !== undefined && { 'content-type': 'text/plain; charset=utf-8' }),
        ...(token !== undefined && { 'fencing-token': token }),
        ...(guard !== undefined && { 'fencing-resource': encodedPath(guard) }),
      },
    });
    const body = await textOf(answer, limits.recordBytesMax);
    if (answer.ok) return { isError: false, text: body };
    const problem: Record<string, unknown> = JSON.parse(body);
    return failed(codeIn(problem.type), problem);
  } catch (cause) {
    if (cause instanceof Problem) throw cause;
    const code = token === undefined ? 'unavailable' : 'outcome-unknown';
    throw new Problem(code, `the answer was lost: ${(cause as Error).message}`, { cause });
  }
}

function failed(code: ProblemCode | null, facts: object): Answer {
  const advice = code === null ? undefined : ADVICE[code];
  return { isError: true, text: JSON.stringify({ code, advice, ...facts }) };
}

/** @throws {Problem} the value is too large, or no text */
async function textOf({ body }: Response, bytesMax: number): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body ?? []) {
    bytes += piece.length;
    if (bytes > bytesMax)
      throw new Problem('body-too-large', `agents may read at most ${bytesMax} bytes`);
    pieces.push(piece);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces));
  } catch {
    throw new Problem('unsupported', 'the object is no text');
  }
}
