import type { Response } from 'express';
import type { Exchange, Handler, Route } from '../exchange.js';
import type { Readiness } from '../readiness.js';
import type { Runtime } from '../runtime.js';
import { shared } from '../shared.js';

export interface OperationParts {
  readonly readiness: Readiness;
  /** The text of Prometheus. */
  readonly metrics: { readonly contentType: string; text(): Promise<string> } | undefined;
  readonly runtime: Runtime;
}

/** Time for which all who ask for metrics are told the same. */
const METRICS_FRESH_MS = 1_000;

/** What a platform asks of a gateway. These need no credentials. */
export function operationRoutes({ readiness, metrics, runtime }: OperationParts): readonly Route[] {
  const livez = open('probe', '/livez', async (response) =>
    send(response, 200, 'text/plain', 'ok\n'),
  );
  const readyz = open('probe', '/readyz', async (response, noteFailure) => {
    const { isReady, lines, reason } = await readiness.look();
    if (!isReady) noteFailure('not-ready', reason);
    send(response, isReady ? 200 : 503, 'text/plain', `${lines.join('\n')}\n`);
  });
  if (metrics === undefined) return [livez, readyz];
  const text = shared(() => metrics.text(), METRICS_FRESH_MS, runtime);
  const prometheus = open('public', '/metrics', async (response) =>
    send(response, 200, metrics.contentType, await text()),
  );
  return [livez, readyz, prometheus];
}

/** The OpenAPI document, which is built when it is first asked for. */
export function documentRoute(build: () => object): Route {
  let text: string | undefined;
  return open('public', '/openapi.json', async (response) => {
    text ??= JSON.stringify(build(), null, 2);
    send(response, 200, 'application/json', text);
  });
}

function open(
  verb: 'public' | 'probe',
  path: string,
  answer: (response: Response, noteFailure: Exchange['noteFailure']) => Promise<void>,
): Route {
  const handler: Handler = {
    verb,
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
