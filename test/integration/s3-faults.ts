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
 * What may happen to a PUT between client and server:
 *
 * - `pass`: nothing.
 * - `reply-lost`: applied, then the connection is cut. `reply-hangs`: applied, and no answer ever.
 * - `error-applied`: applied, answered 500. `error-not-applied`: answered 500 and not forwarded.
 * - `cut-before`: not forwarded, and the connection is cut.
 * - `replayed`: forwarded twice, as a proxy does that saw its upstream connection break; the second answer is passed on.
 * - `late`: the connection is cut, and the request arrives when `deliverLate` is called.
 */
export const FAULTS = [
  'pass',
  'reply-lost',
  'reply-hangs',
  'error-applied',
  'error-not-applied',
  'cut-before',
  'replayed',
  'late',
] as const;
export type Fault = (typeof FAULTS)[number];

interface Answer {
  readonly status: number;
  readonly headers: readonly string[];
  readonly body: Buffer;
}

const SERVER_ERROR: Answer = { status: 500, headers: [], body: Buffer.alloc(0) };

function reply(outgoing: ServerResponse, { status, headers, body }: Answer): void {
  outgoing.writeHead(status, [...headers]).end(body);
}

/** A reverse proxy before a real S3 server that does to each PUT what is next on its list, then lets all pass. */
export class FaultyProxy implements AsyncDisposable {
  readonly faults: Fault[] = [];
  /** The PUTs that clients sent, whatever became of them. */
  puts = 0;
  /** Answers HEAD with 503, so that nothing can be read back. */
  failsHeads = false;
  /** Called once, when a fault has done to the request what it does, and before the client hears of it. */
  meanwhile: (() => Promise<unknown>) | undefined;
  readonly #upstream: URL;
  readonly #server: Server;
  readonly #late: (() => Promise<Answer>)[] = [];

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

  /** Forgets what a test has left undone. */
  reset(): void {
    this.faults.length = 0;
    this.#late.length = 0;
    this.meanwhile = undefined;
    this.puts = 0;
    this.failsHeads = false;
  }

  /** Delivers what was held back; the server's status for each. */
  async deliverLate(): Promise<number[]> {
    const statuses: number[] = [];
    for (const deliver of this.#late.splice(0)) statuses.push((await deliver()).status);
    return statuses;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const body = Buffer.concat(await Array.fromAsync(incoming));
    const forward = (): Promise<Answer> => this.#forward(incoming, body);
    if (incoming.method === 'HEAD' && this.failsHeads)
      return reply(outgoing, { ...SERVER_ERROR, status: 503 });
    if (incoming.method !== 'PUT') return reply(outgoing, await forward());
    this.puts++;
    const fault = this.faults.shift() ?? 'pass';
    const forwarded = !['late', 'cut-before', 'error-not-applied'].includes(fault);
    let answer = forwarded ? await forward() : SERVER_ERROR;
    if (fault === 'late') this.#late.push(forward);
    if (fault === 'replayed') answer = await forward();
    if (fault === 'error-applied') answer = SERVER_ERROR;
    if (fault !== 'pass') {
      const { meanwhile } = this;
      this.meanwhile = undefined;
      await meanwhile?.();
    }
    if (fault === 'reply-hangs') return;
    if (['late', 'cut-before', 'reply-lost'].includes(fault)) incoming.socket.destroy();
    else reply(outgoing, answer);
  }

  async #forward(incoming: IncomingMessage, body: Buffer): Promise<Answer> {
    const { method, url, rawHeaders } = incoming;
    const { hostname, port } = this.#upstream;
    const outgoing = request({
      hostname,
      port,
      method,
      path: url,
      headers: rawHeaders,
      agent: false,
    });
    outgoing.end(body);
    const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
    return {
      status: answer.statusCode ?? 0,
      headers: answer.rawHeaders,
      body: Buffer.concat(await Array.fromAsync(answer)),
    };
  }
}
