import type { Response } from 'express';
import * as z from 'zod';
import type { Exchange, Route } from '../exchange.js';
import { withHead } from '../openapi.js';
import { OF_REQUEST, problems } from '../problem-schemas.js';
import type { Readiness } from '../readiness.js';
import type { Runtime } from '../runtime.js';
import { shared } from '../shared.js';
import { json } from '../wire-schemas.js';

/** Time for which all callers get the same metrics. */
const METRICS_FRESH_MS = 1_000;
const TEXT = { 'text/plain': { schema: z.string() } };

/** `/livez`, `/readyz` and `/metrics`, which need no credentials. */
export function operationRoutes(
  readiness: Readiness,
  metrics: { readonly contentType: string; text(): Promise<string> } | undefined,
  runtime: Runtime,
): readonly Route[] {
  const livez = open('probe', '/livez', 'The process runs', async ({ response }) =>
    send(response, 200, 'text/plain', 'ok\n'),
  );
  const summary = 'Requests can be answered; a line for each dependency';
  const readyz = open('probe', '/readyz', summary, async (exchange) => {
    const { isReady, lines, reason } = await readiness.check();
    if (!isReady) exchange.failure = { outcome: 'not-ready', error: reason };
    send(exchange.response, isReady ? 200 : 503, 'text/plain', `${lines.join('\n')}\n`);
  });
  if (metrics === undefined) return [...livez, ...readyz];
  const text = shared(() => metrics.text(), METRICS_FRESH_MS, runtime);
  const about = 'The text of Prometheus, up to 1 s old';
  const prometheus = open('public', '/metrics', about, async ({ response }) =>
    send(response, 200, metrics.contentType, await text()),
  );
  return [...livez, ...readyz, ...prometheus];
}

/** The OpenAPI document, built for the first request. */
export function documentRoutes(build: () => object): readonly Route[] {
  let text: string | undefined;
  return open('public', '/openapi.json', 'This document', async ({ response }) => {
    text ??= JSON.stringify(build(), null, 2);
    send(response, 200, 'application/json', text);
  });
}

function open(
  verb: 'public' | 'probe',
  path: string,
  summary: string,
  handle: (exchange: Exchange) => Promise<void>,
): readonly Route[] {
  const limited = ['too-many-requests', 'unavailable'] as const;
  // `/openapi.json` becomes `Openapi`.
  const name = path.charAt(1).toUpperCase() + path.slice(2).replace('.json', '');
  const content = path.endsWith('.json') ? json(z.looseObject({})) : TEXT;
  const get: Route = {
    method: 'get',
    path,
    verb,
    handle,
    resource: () => path,
    operation: {
      operationId: `get${name}`,
      summary,
      security: [],
      responses: {
        200: { description: 'The answer.', content },
        ...(path === '/readyz' && { 503: { description: 'Not ready.', content: TEXT } }),
        ...problems(verb === 'public' ? [...OF_REQUEST, ...limited] : OF_REQUEST),
      },
    },
  };
  return withHead(get, { operationId: `head${name}` });
}

function send(response: Response, status: number, contentType: string, text: string): void {
  response.status(status);
  response.setHeader('Content-Type', contentType);
  response.setHeader('Cache-Control', 'no-store');
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(response.req.method === 'HEAD' ? undefined : text);
}
