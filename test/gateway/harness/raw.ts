import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A reply as it came over the wire. */
export interface RawReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Sends bytes as they are, and reads until the server closes the connection. */
export async function send(
  url: string,
  bytes: string | Buffer,
  limitMs = 10_000,
): Promise<readonly RawReply[]> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => undefined);
  const pieces: Buffer[] = [];
  socket.on('data', (piece) => pieces.push(piece));
  socket.write(bytes);
  const isClosed = await Promise.race([
    new Promise<boolean>((resolve) => socket.once('close', () => resolve(true))),
    sleep(limitMs, false, { ref: false }),
  ]);
  socket.destroy();
  if (!isClosed)
    throw new Error(`the connection is still open after ${limitMs} ms: ${Buffer.concat(pieces)}`);
  return repliesIn(Buffer.concat(pieces));
}

/** A request with this target and these headers. After it, the server closes the connection. */
export function requestOf(
  method: string,
  target: string,
  headers: readonly (readonly [string, string])[] = [],
  body: string | Buffer = '',
): Buffer {
  const length = body.length > 0 || method === 'PUT' || method === 'POST' || method === 'PATCH';
  const lines = [
    `${method} ${target} HTTP/1.1`,
    'Host: localhost',
    'Connection: close',
    ...(length ? [`Content-Length: ${Buffer.byteLength(body)}`] : []),
    ...headers.map(([name, value]) => `${name}: ${value}`),
  ];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), Buffer.from(body)]);
}

function repliesIn(bytes: Buffer): RawReply[] {
  const replies: RawReply[] = [];
  for (let rest = bytes; rest.length > 0; ) {
    const headEnd = rest.indexOf('\r\n\r\n');
    if (headEnd < 0) throw new Error(`this is no reply: ${rest.toString('latin1').slice(0, 200)}`);
    const [statusLine = '', ...lines] = rest.subarray(0, headEnd).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
    const headers = Object.fromEntries(
      lines.map((line) => {
        const at = line.indexOf(':');
        return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
      }),
    );
    rest = rest.subarray(headEnd + 4);
    const isEmpty = status < 200 || status === 204 || status === 304;
    const length = isEmpty ? 0 : Number(headers['content-length'] ?? rest.length);
    replies.push({ status, headers, body: rest.subarray(0, length).toString() });
    rest = rest.subarray(length);
  }
  return replies;
}

/** The type of the problem document; if the reply has none, its status. */
export function typeOf(reply: RawReply | undefined): string {
  if (reply === undefined) return 'no reply';
  if (reply.headers['content-type'] !== 'application/problem+json') return `status ${reply.status}`;
  return (JSON.parse(reply.body) as { type: string }).type.replace('urn:fenced:problem:', '');
}
