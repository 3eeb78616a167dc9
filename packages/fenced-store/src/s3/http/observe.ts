import { Readable } from 'node:stream';

/** A middleware that looks and passes on, and so fits every command. */
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

/** What became of a command inside the client. */
export interface Observed {
  /** Whether the client ran this command at all: one that builds a command of its own from it loses what we add. */
  readonly entered: boolean;
  /** Where it was sent; without an address it has not been handed to the network. */
  readonly address: string | undefined;
  /** Whether all of its body was handed to the system, as far as it was sent in pieces. */
  readonly isBodySent: boolean;
  /** What the server calls itself. */
  readonly server: string | undefined;
}

/** Is told how far the body of a request has been handed to the system. */
export interface Sending {
  /** After each piece. */
  onPiece(): void;
  onLast(): void;
  /** Holds back the second half of a body in memory until this is settled; for probes. */
  halfway?: (() => Promise<unknown>) | undefined;
}

/** Bodies above this are sent in pieces of this size. */
const PIECE_BYTES = 2 ** 18;

/**
 * Notes what becomes of a command, and sees to it that it is sent only once, and its body in pieces.
 *
 * The SDK repeats a PUT by itself after 5xx and lost connections; if the first copy was applied, the second is answered 412,
 * and the two can no longer be told apart. `maxAttempts` belongs to the client, which is the caller's, so the command brings
 * its own middleware in the place (name, step and priority) of the SDK's `retryMiddleware`: on merging the two stacks the
 * command's wins, for this one request. Should an SDK move its middleware, merging throws and nothing is sent.
 */
export function observe(stack: Stack, sending: Sending): Observed {
  const observed: { -readonly [Fact in keyof Observed]: Observed[Fact] } = {
    entered: false,
    address: undefined,
    isBodySent: false,
    server: undefined,
  };
  stack.add(
    (next) => (args) => {
      observed.entered = true;
      return next(args);
    },
    { step: 'initialize', name: 'fencedEntered', priority: 'high', override: true },
  );
  stack.add(
    (next) => async (args) => {
      observed.address = addressOf(args);
      inPieces(args, sending, () => {
        observed.isBodySent = true;
      });
      const result = await next(args);
      observed.server = serverOf(result);
      return result;
    },
    { step: 'deserialize', name: 'fencedAddress', priority: 'low', override: true },
  );
  stack.add((next) => next, {
    step: 'finalizeRequest',
    name: 'retryMiddleware',
    priority: 'high',
    override: true,
  });
  return observed;
}

/** Leaves the body out of the signature: a stream could be read for it only once, and then not be sent. */
export function leaveUnsigned(stack: Stack): void {
  setHeader(stack, 'x-amz-content-sha256', 'UNSIGNED-PAYLOAD');
}

/** Sends a header as it is, which the SDK would change or has no field for. */
export function setHeader(stack: Stack, name: string, value: string): void {
  stack.add(
    (next) => (args) => {
      const { request } = args as { readonly request?: { headers: Record<string, string> } };
      if (request) request.headers[name] = value;
      return next(args);
    },
    { step: 'build', name: `fenced-${name}`, priority: 'low', override: true },
  );
}

/** Has the body sent in pieces, each when the connection takes it, so that a slow line can be told from a dead one. */
function inPieces(args: object, { onPiece, onLast, halfway }: Sending, onSent: () => void): void {
  const { request } = args as { readonly request?: { body?: unknown } };
  const body = request?.body;
  if (request === undefined || !(body instanceof Uint8Array || body instanceof Readable)) return;
  if (body instanceof Uint8Array && body.length <= PIECE_BYTES && !halfway) return;
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    for await (const piece of body instanceof Uint8Array ? slices(body, halfway) : body) {
      onPiece();
      yield piece;
    }
    onLast();
    onSent();
  };
  const sent = Readable.from(pieces(), { objectMode: false });
  // The SDK does not listen: a file that is closed because the answer came early would end the process.
  sent.on('error', () => undefined);
  request.body = sent;
}

export async function* slices(
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

function addressOf(args: object): string {
  const { request } = args as {
    readonly request?: { protocol?: string; hostname?: string; port?: number };
  };
  const port = request?.port === undefined ? '' : `:${request.port}`;
  return `${request?.protocol ?? ''}//${request?.hostname ?? ''}${port}`;
}

function serverOf(result: unknown): string | undefined {
  const { response } = result as {
    readonly response?: { readonly headers?: Readonly<Record<string, string>> };
  };
  return response?.headers?.server;
}
