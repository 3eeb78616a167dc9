import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Problem, writeProblem } from './problem.js';
import type { Runtime } from './runtime.js';

/** Time for a client to read the last answer before its connection is closed. */
const LINGER_MS = 1_000;

/** Answers an `Expect` other than `100-continue`. */
export const refuseExpectation: RequestListener = (_, response) => {
  response.setHeader('Connection', 'close');
  writeProblem(response, new Problem('expectation-failed', 'Expect must be 100-continue'));
  response.end();
};

/** Answers malformed requests, which Node passes to no handler, with problem documents too. */
export function answerMalformed(server: Server, runtime: Runtime): void {
  const answer = (socket: Duplex, problem: Problem): void => answerOn(socket, problem, runtime);
  const latest = new WeakMap<Duplex, ServerResponse>();
  const broken = new WeakSet<Duplex>();
  const note = ({ socket }: IncomingMessage, response: ServerResponse): void => {
    latest.set(socket, response);
  };
  server.prependListener('request', note);
  server.prependListener('checkContinue', note);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    // Node reports the error again for each further piece of a broken request.
    if (broken.has(socket)) return;
    broken.add(socket);
    const problem = problemOf(error);
    const response = latest.get(socket);
    if (!socket.writable) socket.destroy();
    else if (response === undefined || response.writableFinished) answer(socket, problem);
    else if (response.headersSent || response.req.complete)
      // The request before this one gets its own answer first.
      response.once('finish', () => answer(socket, problem));
    else {
      response.once('finish', () => socket.destroySoon());
      // The rest of the body never comes. Without this error, a handler that reads the body would
      // wait for ever.
      response.once('close', () => response.req.destroy(error));
      writeProblem(response, problem);
      response.end();
    }
  });
  server.on('connect', (_, socket) => {
    socket.on('error', () => undefined);
    const response = latest.get(socket);
    const refuse = () => answer(socket, new Problem('method-not-allowed', 'this is not a proxy'));
    if (response === undefined || response.writableFinished) refuse();
    else response.once('finish', refuse);
  });
}

function problemOf({ code }: NodeJS.ErrnoException): Problem {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new Problem('headers-too-large', 'send fewer or shorter headers');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Problem('request-timeout', 'the request did not arrive in time');
    default:
      return new Problem('invalid-request', `this is not HTTP as in RFC 9112 code=${code}`);
  }
}

/** Answers, and closes the connection after a while, even if the client never closes its side. */
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
