import { Readable } from 'node:stream';

/** A middleware that keeps the types of arguments and result, and so fits every command. */
type Passing = <Args extends object, Result>(
  next: (args: Args) => Promise<Result>,
) => (args: Args) => Promise<Result>;

interface Place<Step extends string> {
  readonly step: Step;
  readonly name: string;
  readonly priority: 'high' | 'low';
  readonly override: true;
}

/** The one method of a command's middleware stack that is used. */
export interface Stack {
  add(middleware: Passing, place: Place<'initialize'>): void;
  add(middleware: Passing, place: Place<'build'>): void;
  add(middleware: Passing, place: Place<'finalizeRequest'>): void;
  add(middleware: Passing, place: Place<'deserialize'>): void;
}

/** The progress of a command inside the client. */
export interface Observed {
  /** True if the client ran this command. A client that builds another one loses our middleware. */
  readonly entered: boolean;
  /** Address of the server; without it, the command was not handed to the network. */
  readonly address: string | undefined;
  /** Name that the server gives itself. */
  readonly server: string | undefined;
}

/** Callbacks and options of one request. */
export interface Sending {
  /** Called when the operating system has taken a piece of the body. */
  onPiece(): void;
  /** Called when the operating system has taken the last piece. */
  onLast(): void;
  /** Holds back the second half of a body until this is settled. */
  readonly halfway: (() => Promise<unknown>) | undefined;
  readonly isVerified: boolean;
}

interface HttpMessage {
  readonly headers?: Record<string, string>;
  readonly protocol?: string;
  readonly hostname?: string;
  readonly port?: number;
  body?: unknown;
}

/** Larger bodies are sent in pieces of this size. */
const PIECE_BYTES = 2 ** 18;

/**
 * Observes a command. Makes the SDK send it only once, and its body in pieces.
 *
 * The SDK repeats a PUT after 5xx and lost connections. If the first copy was applied, the second
 * is answered 412, as if another write had been quicker. `maxAttempts` belongs to the client, which
 * is the caller's. So the command replaces the SDK's `retryMiddleware` (same name, step and
 * priority) for this one request. If an SDK moves its middleware, merging throws, and nothing is
 * sent.
 */
export function observe(stack: Stack, sending: Sending): Observed {
  const observed: { -readonly [Fact in keyof Observed]: Observed[Fact] } = {
    entered: false,
    address: undefined,
    server: undefined,
  };
  stack.add(
    (next) => (args) => {
      observed.entered = true;
      return next(args);
    },
    { step: 'initialize', name: 'fencedEntered', priority: 'high', override: true },
  );
  stack.add((next) => next, {
    step: 'finalizeRequest',
    name: 'retryMiddleware',
    priority: 'high',
    override: true,
  });
  stack.add(
    (next) => async (args) => {
      const { request = {} } = args as { readonly request?: HttpMessage };
      const { protocol = '', hostname = '', port } = request;
      observed.address = `${protocol}//${hostname}${port === undefined ? '' : `:${port}`}`;
      sendInPieces(request, sending);
      const result = await next(args);
      const { headers = {} } = (result as { readonly response?: HttpMessage }).response ?? {};
      observed.server = headers.server;
      if (sending.isVerified) dropChecksums(headers);
      return result;
    },
    { step: 'deserialize', name: 'fencedAddress', priority: 'low', override: true },
  );
  return observed;
}

/**
 * Keeps the SDK from checking the stored bytes of an object in the layout `gzip`. The reader checks
 * the CRC-32 of the body. Checking twice takes a fifth of the CPU time of `getStream`.
 */
function dropChecksums(headers: Record<string, string>): void {
  const { 'x-amz-meta-fencing-token': token, 'x-amz-meta-fencing-layout': layout } = headers;
  if (token === undefined || layout !== undefined) return;
  for (const name of Object.keys(headers))
    if (name.startsWith('x-amz-checksum-')) delete headers[name];
}

/** Leaves the body out of the signature, because a stream can be read only once. */
export function leaveUnsigned(stack: Stack): void {
  setHeader(stack, 'x-amz-content-sha256', 'UNSIGNED-PAYLOAD');
}

/** Sends a header that the SDK has no field for, or would change. */
export function setHeader(stack: Stack, name: string, value: string): void {
  stack.add(
    (next) => (args) => {
      const { request } = args as { readonly request?: HttpMessage };
      if (request?.headers) request.headers[name] = value;
      return next(args);
    },
    { step: 'build', name: `fenced-${name}`, priority: 'low', override: true },
  );
}

/** Sends each piece when the connection takes it, so that `onPiece` shows a slow line as alive. */
function sendInPieces(request: HttpMessage, { onPiece, onLast, halfway }: Sending): void {
  // The Complete of an upload is text.
  const isText = typeof request.body === 'string' && halfway !== undefined;
  const body = isText ? Buffer.from(request.body as string) : request.body;
  if (!(body instanceof Uint8Array || body instanceof Readable)) return;
  if (body instanceof Uint8Array && body.length <= PIECE_BYTES && !halfway) return;
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    for await (const piece of body instanceof Uint8Array ? piecesOf(body, halfway) : body) {
      onPiece();
      yield piece;
    }
    onLast();
  };
  const sent = Readable.from(pieces(), { objectMode: false });
  // The SDK does not listen for errors. Without a listener, an error would end the process, such as
  // that of a file which is closed after an early answer.
  sent.on('error', () => undefined);
  request.body = sent;
}

/** @param halfway holds back the second half until it is settled */
export async function* piecesOf(
  body: Uint8Array,
  halfway: Sending['halfway'],
): AsyncGenerator<Uint8Array> {
  const half = halfway ? body.length >> 1 : 0;
  if (halfway) {
    yield body.subarray(0, half);
    await halfway();
  }
  for (let at = half; at < body.length; at += PIECE_BYTES)
    yield body.subarray(at, at + PIECE_BYTES);
}
