import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Response } from 'express';

/** The answer of a handler. The gate writes it to its client, or hands it to a tool of an agent. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** A stream is read at most once. Without a body, only the headers are sent. */
  readonly body?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** Ends a stream that nobody reads to its end. */
  readonly release?: () => void;
  /** The failure for log and metrics, if the answer is no problem document. */
  readonly failure?: { readonly outcome: string; readonly error: unknown };
}

/** JSON that no cache may keep. */
export function jsonAnswer(
  status: number,
  body: Readonly<Record<string, unknown>>,
  headers: Readonly<Record<string, string>> = {},
): Answer {
  return {
    status,
    // Express's own method would add a charset, which `application/json` does not have.
    headers: { ...headers, 'Cache-Control': 'no-store', 'Content-Type': 'application/json' },
    body: Buffer.from(JSON.stringify(body)),
  };
}

/** Writes an answer, unless its client got another one in the meantime. */
export async function writeAnswer(response: Response, answer: Answer): Promise<void> {
  const { status, headers, body, release } = answer;
  try {
    if (response.headersSent || response.destroyed) return;
    response.status(status);
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (body instanceof Uint8Array) response.setHeader('Content-Length', body.length);
    if (body === undefined || response.req.method === 'HEAD') response.end();
    else if (body instanceof Uint8Array) response.end(body);
    else await pipeline(Readable.from(body, { objectMode: false }), response);
  } finally {
    release?.();
  }
}
