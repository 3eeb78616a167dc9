import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { checkWholeNumber } from '@fenced/store/internal';
import type { Express } from 'express';
import { Problem, writeProblem } from './problem.js';
import { addressName } from './rate-limit.js';
import { Room, type RoomUse } from './room.js';
import { type Runtime, systemRuntime } from './runtime.js';

/** Milliseconds and bytes. */
export interface ServerOptions {
  /** @default '127.0.0.1' */
  readonly host?: string;
  /** 0 takes a free one. @default 8080 */
  readonly port?: number;
  /** Aborted when the server begins to drain; the one that the gateway was given. */
  readonly draining?: AbortController;
  /** Aborted when the grace of the drain is over; the one that the gateway was given. */
  readonly graceOver?: AbortController;
  /** How long all headers of a request may take. @default 10_000 */
  readonly headersMs?: number;
  /** How long a whole request may take to arrive, uploads too. @default 3_600_000 */
  readonly requestMs?: number;
  /** How long a connection may stay without a request. @default 65_000 */
  readonly keepAliveMs?: number;
  /** How long nothing at all may happen on a connection; longer than the longest wait for a lease. @default 120_000 */
  readonly idleMs?: number;
  /** @default 16 KiB */
  readonly headerBytesMax?: number;
  /** @default 10_000 */
  readonly connectionsMax?: number;
  /**
   * Connections from one address, of IPv6 from one /64. Those of the gateway's `trustedProxies` stand for many clients and have no
   * such limit. @default as many as the address leaves free for others
   */
  readonly connectionsPerAddressMax?: number;
  /** Shows how many connections there are. */
  readonly metrics?: { watchLimits?(uses: () => readonly RoomUse[]): void };
  /** Told of each connection that was closed at once, as it was one too many. */
  readonly onRefused?: (address: string, reason: Problem) => void;
  /** How long to go on serving after readiness has failed, so that load balancers notice. @default 0 */
  readonly drainDelayMs?: number;
  /** How long running requests may go on after that. @default 25_000 */
  readonly graceMs?: number;
}

export interface GatewayServer {
  readonly url: string;
  /**
   * Readiness fails at once; running requests end, idle connections close. What is still running when the time is over is cut off.
   *
   * @returns whether all requests came to their end
   */
  drain(): Promise<boolean>;
}

/** From as many unanswered requests on, no more is read from a connection; below, it is seen when the client has gone. */
const PIPELINED_MAX = 16;
/** Time in which a client may read an answer after which the connection is closed. */
const LINGER_MS = 1_000;
const DEFAULTS = {
  ...{ host: '127.0.0.1', port: 8080, headersMs: 10_000, requestMs: 3_600_000 },
  ...{ keepAliveMs: 65_000, idleMs: 120_000, headerBytesMax: 16_384, connectionsMax: 10_000 },
  ...{ drainDelayMs: 0, graceMs: 25_000 },
};

/** Listens, with every limit that Node has against slow and hostile clients. @throws where the address cannot be had */
export async function serveGateway(
  app: Express,
  options: ServerOptions = {},
  runtime: Runtime = systemRuntime,
): Promise<GatewayServer> {
  const { draining = new AbortController(), graceOver = new AbortController(), ...given } = options;
  const settings = { ...DEFAULTS, ...given };
  const { metrics, onRefused, connectionsPerAddressMax = null, ...numbers } = settings;
  const { host, port, drainDelayMs, graceMs, connectionsMax, idleMs, ...limits } = numbers;
  for (const [name, value] of Object.entries({ port, drainDelayMs, graceMs }))
    checkWholeNumber(name, value, 0, 2 ** 31 - 1);
  for (const [name, value] of Object.entries({ ...limits, connectionsMax, idleMs }))
    checkWholeNumber(name, value, 1, 2 ** 31 - 1);
  if (connectionsPerAddressMax !== null)
    checkWholeNumber('connectionsPerAddressMax', connectionsPerAddressMax, 1, 2 ** 31 - 1);
  const server = createServer({
    headersTimeout: limits.headersMs,
    requestTimeout: limits.requestMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: Math.min(1_000, limits.headersMs),
    maxHeaderSize: limits.headerBytesMax,
    // What is missing is said by the gateway, in its own format.
    requireHostHeader: false,
    insecureHTTPParser: false,
    noDelay: true,
  });
  // Node would drop those beyond its limit, and with them the second of two that contradict each other.
  server.maxHeadersCount = 0;
  server.setTimeout(idleMs);
  const connections = new Room('connections', connectionsMax, connectionsPerAddressMax);
  metrics?.watchLimits?.(() => [connections.use]);
  limitConnections(server, connections, isProxyOf(app), onRefused);
  answerWhatNodeRefuses(server, runtime);
  const unanswered = new Unanswered(server, draining.signal);
  server.on('request', unanswered.inTurn(app));
  // The answer may be that the body is not wanted.
  server.on('checkContinue', unanswered.inTurn(app));
  server.on('checkExpectation', unanswered.inTurn(refuseExpectation));
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`,
    drain: () =>
      drain({ server, unanswered, draining, graceOver }, { drainDelayMs, graceMs }, runtime),
  };
}

/** The rule by which the gateway believes `X-Forwarded-For`, which Express has compiled. */
function isProxyOf(app: Express): (address: string) => boolean {
  const isTrusted = app.get('trust proxy fn') as (address: string, hop: number) => boolean;
  return (address) => isTrusted(address, 0);
}

/** Closes connections that are too many. Without an answer: a client that reads none would keep its descriptor meanwhile. */
function limitConnections(
  server: Server,
  room: Room,
  isProxy: (address: string) => boolean,
  onRefused: ServerOptions['onRefused'],
): void {
  server.on('connection', (socket: Socket) => {
    const { remoteAddress } = socket;
    // It has gone already.
    if (remoteAddress === undefined) return void socket.destroy();
    try {
      const leave = room.enter(isProxy(remoteAddress) ? null : addressName(remoteAddress));
      socket.once('close', leave);
    } catch (error) {
      socket.destroy();
      onRefused?.(remoteAddress, error as Problem);
    }
  });
}

/** For the answers to requests that are ended at the end of the grace. */
const LAST_ANSWERS_MS = 1_000;

async function drain(
  { server, unanswered, draining, graceOver }: Draining,
  { drainDelayMs, graceMs }: { readonly drainDelayMs: number; readonly graceMs: number },
  runtime: Runtime,
): Promise<boolean> {
  draining.abort(new Problem('shutting-down', 'try another gateway', { retryAfterMs: 1 }));
  if (drainDelayMs > 0) await new Promise<void>((resolve) => runtime.after(drainDelayMs, resolve));
  let isWhole = true;
  let cancel = runtime.after(graceMs, () => {
    isWhole = false;
    graceOver.abort();
    cancel = runtime.after(LAST_ANSWERS_MS, () => server.closeAllConnections());
  });
  const closed = new Promise((resolve) => server.close(resolve));
  unanswered.closeIdle();
  await closed;
  cancel();
  return isWhole;
}

interface Draining {
  readonly server: Server;
  readonly unanswered: Unanswered;
  readonly draining: AbortController;
  readonly graceOver: AbortController;
}

/**
 * The requests of each connection that have not been answered.
 *
 * Invariant: of one connection, one request is worked on at a time, in their order. RFC 9112, 9.3.2: what a client sends without
 * waiting for answers may be worked on in parallel only if all of it is safe.
 */
class Unanswered {
  /** What begins each of them; the first has begun. */
  readonly #requests = new Map<Duplex, (() => void)[]>();
  readonly #draining: AbortSignal;

  constructor(server: Server, draining: AbortSignal) {
    this.#draining = draining;
    server.on('connection', (socket) => {
      this.#requests.set(socket, []);
      socket.once('close', () => this.#requests.delete(socket));
    });
  }

  /** Has requests handled when those before them on their connection have been answered. */
  inTurn(handle: RequestListener): RequestListener {
    return (request, response) => {
      const { socket } = request;
      const requests = this.#requests.get(socket);
      if (requests === undefined) return;
      const begin = (): void => {
        // What turned out to be malformed meanwhile has its answer.
        if (!response.writableEnded) handle(request, response);
      };
      response.once('close', () => this.#proceed(socket, requests));
      requests.push(begin);
      if (requests.length === 1) begin();
      else if (requests.length >= PIPELINED_MAX)
        // Not now: Node starts to read again at the end of each request.
        process.nextTick(() => {
          if (requests.length >= PIPELINED_MAX) socket.pause();
        });
    };
  }

  #proceed(socket: Socket, requests: (() => void)[]): void {
    requests.shift();
    // It closes behind that answer.
    if (!socket.writable) return;
    const [begin] = requests;
    if (requests.length === PIPELINED_MAX - 1) socket.resume();
    if (begin) begin();
    else if (this.#draining.aborted) socket.destroySoon();
  }

  /** Closes connections without a request. Node's own way spares those that never sent a whole one. */
  closeIdle(): void {
    for (const [socket, requests] of this.#requests) if (requests.length === 0) socket.destroy();
  }
}

const refuseExpectation: RequestListener = (_, response) => {
  response.setHeader('Connection', 'close');
  writeProblem(response, new Problem('expectation-failed', 'only 100-continue can be expected'));
  response.end();
};

/** Requests that Node does not hand to anybody are answered as all others. */
function answerWhatNodeRefuses(server: Server, runtime: Runtime): void {
  const answer = (socket: Duplex, problem: Problem): void => answerOn(socket, problem, runtime);
  const latest = new WeakMap<Duplex, ServerResponse>();
  const broken = new WeakSet<Duplex>();
  const note = ({ socket }: IncomingMessage, response: ServerResponse): void => {
    latest.set(socket, response);
  };
  server.prependListener('request', note);
  server.prependListener('checkContinue', note);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    // Each piece of what follows is an error again.
    if (broken.has(socket)) return;
    broken.add(socket);
    const problem = meaningOf(error);
    const response = latest.get(socket);
    if (!socket.writable) socket.destroy();
    else if (response === undefined || response.writableFinished) answer(socket, problem);
    else if (response.headersSent || response.req.complete)
      // What came before has an answer of its own, which comes first.
      response.once('finish', () => answer(socket, problem));
    else {
      response.once('finish', () => socket.destroySoon());
      // Node forgets a request that is answered. Who reads its body would wait for the rest.
      response.once('close', () => response.req.destroy(error));
      writeProblem(response, problem);
      response.end();
    }
  });
  server.on('connect', (_, socket) => {
    socket.on('error', () => undefined);
    const response = latest.get(socket);
    const refuse = () => answer(socket, new Problem('method-not-allowed', 'this is no proxy'));
    if (response === undefined || response.writableFinished) refuse();
    else response.once('finish', refuse);
  });
}

function meaningOf({ code }: NodeJS.ErrnoException): Problem {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new Problem('headers-too-large', 'send fewer or shorter headers');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Problem('request-timeout', 'the request did not arrive in time');
    default:
      return new Problem('invalid-request', `this is not HTTP as RFC 9112 has it code=${code}`);
  }
}

/** Answers and closes. A client that never closes its own side keeps no descriptor for that. */
function answerOn(socket: Duplex, problem: Problem, runtime: Runtime): void {
  const body = JSON.stringify(problem.document());
  const headers = {
    ...problem.headers,
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  socket.end([`HTTP/1.1 ${problem.status} `, ...lines, '', body].join('\r\n'));
  socket.once(
    'close',
    runtime.after(LINGER_MS, () => socket.destroy()),
  );
}
