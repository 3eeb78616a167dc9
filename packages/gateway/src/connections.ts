import type { RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ConcurrencyLimit } from './concurrency-limit.js';
import type { Problem } from './problem.js';
import { addressName } from './rate-limit.js';

/**
 * With this many unanswered requests, the gateway stops reading from the connection. With fewer it
 * goes on, because only a reader notices that the client has closed the connection.
 */
const PIPELINED_MAX = 16;

/**
 * Closes excess connections without an answer. If an answer were sent, a client that never reads
 * could keep the descriptor open.
 */
export function limitConnections(
  server: Server,
  limit: ConcurrencyLimit,
  isProxy: (address: string) => boolean,
  onRefused: ((address: string, reason: Problem) => void) | undefined,
): void {
  server.on('connection', (socket: Socket) => {
    const { remoteAddress } = socket;
    // The client has closed the connection already.
    if (remoteAddress === undefined) return void socket.destroy();
    try {
      const leave = limit.enter(isProxy(remoteAddress) ? null : addressName(remoteAddress));
      socket.once('close', leave);
    } catch (error) {
      socket.destroy();
      onRefused?.(remoteAddress, error as Problem);
    }
  });
}

/**
 * The unanswered requests of each connection.
 *
 * Invariant: the requests of one connection run one at a time, in the order of their arrival. RFC
 * 9112, 9.3.2: requests that a client sends without waiting for answers may run in parallel only if
 * all of them are safe.
 */
export class RequestQueues {
  /** For each connection, the functions that begin its requests. The first one was called. */
  readonly #queues = new Map<Duplex, (() => void)[]>();
  readonly #draining: AbortSignal;

  constructor(server: Server, draining: AbortSignal) {
    this.#draining = draining;
    server.on('connection', (socket) => {
      this.#queues.set(socket, []);
      socket.once('close', () => this.#queues.delete(socket));
    });
  }

  /**
   * Wraps `handle`: each request begins after the answers to all earlier requests of its
   * connection.
   */
  inTurn(handle: RequestListener): RequestListener {
    return (request, response) => {
      const { socket } = request;
      const queue = this.#queues.get(socket);
      if (queue === undefined) return;
      const begin = (): void => {
        // A request that turned out to be malformed while it waited has its answer already.
        if (!response.writableEnded) handle(request, response);
      };
      response.once('close', () => this.#proceed(socket, queue));
      queue.push(begin);
      if (queue.length === 1) begin();
      else if (queue.length >= PIPELINED_MAX)
        // Not earlier: after this call, Node finishes parsing the request, and resumes the socket.
        process.nextTick(() => {
          if (queue.length >= PIPELINED_MAX) socket.pause();
        });
    };
  }

  #proceed(socket: Socket, queue: (() => void)[]): void {
    queue.shift();
    // The answer that has ended closes the connection, so no further request begins.
    if (!socket.writable) return;
    const [begin] = queue;
    if (queue.length === PIPELINED_MAX - 1) socket.resume();
    if (begin) begin();
    else if (this.#draining.aborted) socket.destroySoon();
  }

  /**
   * Closes connections without a running request. Node's `closeIdleConnections` leaves those open
   * that have never sent a whole request.
   */
  closeIdle(): void {
    for (const [socket, queue] of this.#queues) if (queue.length === 0) socket.destroy();
  }
}
