import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * Faults of a request between client and server:
 *
 * - `pass`: nothing.
 * - `reply-lost`: applied, then the connection is cut. `reply-hangs`: applied, and no answer ever.
 * - `reply-cut`: applied, and the answer breaks off in the middle.
 * - `error-applied`: applied, answered 500.
 * - `error-in-200`: applied, answered 200 with an error as its body.
 * - `error-not-applied`: answered 500 and not forwarded.
 * - `cut-before`: not forwarded, and the connection is cut.
 * - `replayed`: forwarded twice, as by a proxy after a broken connection; the second reply counts.
 * - `doubled`: forwarded twice; the first reply counts.
 * - `late`: the connection is cut, and the request arrives when `deliverLate` is called.
 *
 * These mislead the client, so they need a history of their own:
 *
 * - `shifted`: forwarded, and answered with the reply to the write before it.
 * - `past`: not forwarded, and answered with the first reply to such a request, as by a cache.
 * - `conflict`: not forwarded, and answered 409, as by AWS beside another copy of the request.
 * - `late-conflict`: the same, and the request arrives when `deliverLate` is called.
 */
export const FAULTS = [
  'pass',
  'reply-lost',
  'reply-hangs',
  'reply-cut',
  'error-applied',
  'error-in-200',
  'error-not-applied',
  'cut-before',
  'replayed',
  'doubled',
  'late',
] as const;
export type Fault = (typeof FAULTS)[number] | 'shifted' | 'past' | 'conflict' | 'late-conflict';

interface Answer {
  readonly status: number;
  readonly headers: readonly string[];
  readonly body: Buffer;
}

const SERVER_ERROR: Answer = { status: 500, headers: [], body: Buffer.alloc(0) };
const ERROR_IN_200: Answer = {
  status: 200,
  headers: ['content-type', 'application/xml'],
  body: Buffer.from('<?xml version="1.0"?>\n<Error><Code>InternalError</Code></Error>'),
};
const CONFLICT: Answer = {
  status: 409,
  headers: ['content-type', 'application/xml'],
  body: Buffer.from('<Error><Code>ConditionalRequestConflict</Code></Error>'),
};
const NOT_FORWARDED: readonly Fault[] = [
  ...(['late', 'cut-before', 'error-not-applied'] as const),
  ...(['past', 'conflict', 'late-conflict'] as const),
];
const NOT_ANSWERED: readonly Fault[] = ['late', 'cut-before', 'reply-lost'];

/**
 * A reverse proxy before a real S3 server. It applies the next fault of its list to each request.
 */
export class FaultyProxy implements AsyncDisposable {
  /**
   * The faults of the next requests, first to last. `of` says which requests count. Those of a
   * probe never do.
   */
  readonly faults: Fault[] = [];
  /** Which requests meet with the faults: only writes, or every one. */
  of: 'PUT' | 'HEAD' | 'all' = 'PUT';
  /** All requests of the clients. */
  readonly seen: string[] = [];
  /** Answers HEAD with 500, so that nothing can be read back. */
  failsHeads = false;
  /** Called once, after a fault and before the client gets a reply. */
  meanwhile: (() => Promise<unknown>) | undefined;
  readonly #upstream: URL;
  readonly #server: Server;
  readonly #late: (() => Promise<Answer>)[] = [];
  /** The first reply to each kind of request, and the latest reply to a write. */
  readonly #first = new Map<string, Answer>();
  #latestWrite = SERVER_ERROR;

  private constructor(upstream: string) {
    this.#upstream = new URL(upstream);
    this.#server = createServer((incoming, outgoing) => {
      this.#handle(incoming, outgoing).catch(() => incoming.socket.destroy());
    });
  }

  static async start(upstream: string): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(upstream);
    await once(proxy.#server.listen(0, '127.0.0.1'), 'listening');
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get puts(): number {
    return this.seen.filter((method) => method === 'PUT').length;
  }

  /** Removes the faults that a test has left. */
  reset(): void {
    this.faults.length = 0;
    this.of = 'PUT';
    this.#late.length = 0;
    this.#first.clear();
    this.meanwhile = undefined;
    this.seen.length = 0;
    this.failsHeads = false;
  }

  /** Delivers late requests. Returns the status of each; 0 if MinIO cut the connection. */
  async deliverLate(): Promise<number[]> {
    const statuses: number[] = [];
    for (const deliver of this.#late.splice(0))
      statuses.push(
        await deliver().then(
          ({ status }) => status,
          () => 0,
        ),
      );
    return statuses;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const body = Buffer.concat(await Array.fromAsync(incoming));
    const forward = (): Promise<Answer> => this.#forward(incoming, body);
    const { method = '' } = incoming;
    if (method === 'HEAD' && this.failsHeads) return reply(outgoing, method, SERVER_ERROR);
    this.seen.push(method);
    const isProbe = incoming.url?.includes('/.fenced-probe/');
    const isMet = !isProbe && (this.of === 'all' || method === this.of);
    const fault = (isMet ? this.faults.shift() : undefined) ?? 'pass';
    let answer = NOT_FORWARDED.includes(fault) ? SERVER_ERROR : await forward();
    if (fault === 'shifted') answer = this.#latestWrite;
    if (fault === 'past') answer = this.#first.get(method) ?? answer;
    if (fault === 'conflict' || fault === 'late-conflict') answer = CONFLICT;
    if (fault === 'late' || fault === 'late-conflict') this.#late.push(forward);
    if (fault === 'pass' && !this.#first.has(method)) this.#first.set(method, answer);
    if (fault === 'pass' && method === 'PUT') this.#latestWrite = answer;
    if (fault === 'replayed') answer = await forward();
    if (fault === 'doubled') await forward();
    if (fault === 'error-applied') answer = SERVER_ERROR;
    if (fault === 'error-in-200') answer = ERROR_IN_200;
    if (fault !== 'pass') {
      const { meanwhile } = this;
      this.meanwhile = undefined;
      await meanwhile?.();
    }
    if (fault === 'reply-hangs') return;
    if (NOT_ANSWERED.includes(fault)) incoming.socket.destroy();
    else if (fault === 'reply-cut') cut(incoming, answer);
    else reply(outgoing, method, answer);
  }

  async #forward(incoming: IncomingMessage, body: Buffer): Promise<Answer> {
    const { method, url, rawHeaders } = incoming;
    const { hostname, port } = this.#upstream;
    // The proxy has the whole body already, so the server need not be asked by `Expect`.
    const headers = rawHeaders.flatMap((name, i) =>
      i % 2 === 0 && name.toLowerCase() !== 'expect' ? [name, rawHeaders[i + 1] ?? ''] : [],
    );
    const outgoing = request({ hostname, port, method, path: url, headers, agent: false });
    outgoing.end(body);
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
    return {
      status: answer.statusCode ?? 0,
      headers: answer.rawHeaders,
      body: Buffer.concat(await Array.fromAsync(answer)),
    };
  }
}

function reply(outgoing: ServerResponse, method: string, { status, headers, body }: Answer): void {
  // A reply to HEAD has no body, although its headers have the length of the object.
  outgoing.writeHead(status, [...headers]).end(method === 'HEAD' ? undefined : body);
}

/** Sends the first half of a reply, straight to the socket: a server of Node would send all. */
function cut({ socket }: IncomingMessage, { status, headers, body }: Answer): void {
  const lines = headers.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${headers[i + 1]}`] : []));
  const whole = Buffer.from(`HTTP/1.1 ${status} X\r\n${lines.join('\r\n')}\r\n\r\n`);
  const bytes = Buffer.concat([whole, body]);
  socket.write(bytes.subarray(0, Math.floor(bytes.length - Math.max(5, body.length / 2))));
  socket.end();
}
