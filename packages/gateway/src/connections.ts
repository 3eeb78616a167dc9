import type { RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ConcurrencyLimit } from './concurrency-limit.js';
import type { Problem } from './problem.js';
import { addressName } from './rate-limit.js';

/**
 * From this many unanswered requests on, nothing more is read from a connection. Below, a client
 * that goes is noticed.
 */
const PIPELINED_MAX = 16;

/**
 * Closes excess connections without an answer: a client that reads none would keep its descriptor
 * meanwhile.
 */
export function limitConnections(
  server: Server,
  limit: ConcurrencyLimit,
  isProxy: (address: string) => boolean,
  onRefused: ((address: string, reason: Problem) => void) | undefined,
): void {
  server.on('connection', (socket: Socket) => {
    const { remoteAddress } = socket;
    // It has closed already.
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
 * Invariant: of one connection, one request runs at a time, in their order. RFC 9112, 9.3.2:
 * requests that a client sends without waiting for answers may run in parallel only if all of them
 * are safe.
 */
export class RequestQueues {
  /** The functions that begin them. The first has begun. */
  readonly #queues = new Map<Duplex, (() => void)[]>();
  readonly #draining: AbortSignal;

  constructor(server: Server, draining: AbortSignal) {
    this.#draining = draining;
    server.on('connection', (socket) => {
      this.#queues.set(socket, []);
      socket.once('close', () => this.#queues.delete(socket));
    });
  }

  /** Handles each request after the answers to all earlier ones of its connection. */
  inTurn(handle: RequestListener): RequestListener {
    return (request, response) => {
      const { socket } = request;
      const queue = this.#queues.get(socket);
      if (queue === undefined) return;
      const begin = (): void => {
        // A request that turned out to be malformed meanwhile has its answer.
        if (!response.writableEnded) handle(request, response);
      };
      response.once('close', () => this.#proceed(socket, queue));
      queue.push(begin);
      if (queue.length === 1) begin();
      else if (queue.length >= PIPELINED_MAX)
        // Not now: Node starts to read again at the end of each request.
        process.nextTick(() => {
          if (queue.length >= PIPELINED_MAX) socket.pause();
        });
    };
  }

  #proceed(socket: Socket, queue: (() => void)[]): void {
    queue.shift();
    // The connection closes after that answer.
    if (!socket.writable) return;
    const [begin] = queue;
    if (queue.length === PIPELINED_MAX - 1) socket.resume();
    if (begin) begin();
    else if (this.#draining.aborted) socket.destroySoon();
  }

  /**
   * Closes connections without a request. Node's own method spares those that never sent a whole
   * one.
   */
  closeIdle(): void {
    for (const [socket, queue] of this.#queues) if (queue.length === 0) socket.destroy();
  }
}
