import type { Response } from 'express';
import type { Exchange, Handler, Route } from '../exchange.js';
import type { Readiness } from '../readiness.js';

export interface OperationParts {
  readonly readiness: Readiness;
  /** The text of Prometheus. */
  readonly metrics: { readonly contentType: string; text(): Promise<string> } | undefined;
  /** The OpenAPI document. */
  readonly document: () => object;
}

/** What a platform asks of a gateway. These need no credentials. */
export function operationRoutes({
  readiness,
  metrics,
  document,
}: OperationParts): readonly Route[] {
  const livez = open('/livez', async (response) => send(response, 200, 'text/plain', 'ok\n'));
  const readyz = open('/readyz', async (response, noteFailure) => {
    const { isReady, lines, reason } = await readiness.look();
    if (!isReady) noteFailure('not-ready', reason);
    send(response, isReady ? 200 : 503, 'text/plain', `${lines.join('\n')}\n`);
  });
  const openapi = open('/openapi.json', async (response) =>
    send(response, 200, 'application/json', JSON.stringify(document(), null, 2)),
  );
  if (metrics === undefined) return [livez, readyz, openapi];
  const prometheus = open('/metrics', async (response) =>
    send(response, 200, metrics.contentType, await metrics.text()),
  );
  return [livez, readyz, openapi, prometheus];
}

function open(
  path: string,
  answer: (response: Response, noteFailure: Exchange['noteFailure']) => Promise<void>,
): Route {
  const handler: Handler = {
    verb: 'public',
    handle: ({ response, noteFailure }) => answer(response, noteFailure),
  };
  return {
    path,
    resource: () => path,
    methods: { get: handler, head: handler },
  };
}

function send(response: Response, status: number, contentType: string, text: string): void {
  response.status(status);
  response.setHeader('Content-Type', contentType);
  response.setHeader('Cache-Control', 'no-store');
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(response.req.method === 'HEAD' ? undefined : text);
}
