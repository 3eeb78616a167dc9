import type { Request } from 'express';

/** A request as its handler sees it. It came over HTTP, or a tool of an agent made it. */
export interface Message {
  readonly method: string;
  /** A header, if it was sent once. */
  get(name: string): string | undefined;
  /** All headers, by their names in lower case. */
  readonly headersDistinct: Readonly<Record<string, readonly string[] | undefined>>;
  /** Asks the client for the body, and returns its pieces as they arrive. */
  open(): AsyncIterator<Uint8Array>;
}

export function messageOf(request: Request): Message {
  return {
    method: request.method,
    get: (name) => request.get(name),
    headersDistinct: request.headersDistinct,
    open: () => {
      // RFC 9110, 10.1.1: a client of HTTP/1.0 would take 100 (Continue) for the answer.
      if (request.get('expect') !== undefined && request.httpVersion !== '1.0')
        request.res?.writeContinue();
      // By default, an iterator that ends early destroys the connection, and the answer with it.
      return request.iterator({ destroyOnReturn: false });
    },
  };
}

/** A request that this process makes. @param headers with names in lower case */
export function ownMessage(
  method: string,
  headers: Readonly<Record<string, string>>,
  body: Uint8Array | undefined,
): Message {
  const all = { ...headers, 'content-length': String(body?.length ?? 0) };
  const found = new Map(Object.entries(all));
  return {
    method,
    get: (name) => found.get(name.toLowerCase()),
    headersDistinct: Object.fromEntries([...found].map(([name, value]) => [name, [value]])),
    open: async function* () {
      if (body !== undefined) yield body;
    },
  };
}
