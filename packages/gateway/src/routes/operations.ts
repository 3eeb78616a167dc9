import * as z from 'zod';
import type { Answer } from '../answer.js';
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
  const livez = open('probe', '/livez', 'The process runs', async () =>
    textAnswer(200, 'text/plain', 'ok\n'),
  );
  const summary = 'Requests can be answered; a line for each dependency';
  const readyz = open('probe', '/readyz', summary, async () => {
    const { isReady, lines, reason } = await readiness.check();
    const answer = textAnswer(isReady ? 200 : 503, 'text/plain', `${lines.join('\n')}\n`);
    return isReady ? answer : { ...answer, failure: { outcome: 'not-ready', error: reason } };
  });
  if (metrics === undefined) return [...livez, ...readyz];
  const text = shared(() => metrics.text(), METRICS_FRESH_MS, runtime);
  const about = 'The text of Prometheus, up to 1 s old';
  const prometheus = open('public', '/metrics', about, async () =>
    textAnswer(200, metrics.contentType, await text()),
  );
  return [...livez, ...readyz, ...prometheus];
}

/** The OpenAPI document, built for the first request. */
export function documentRoutes(build: () => object): readonly Route[] {
  let text: string | undefined;
  return open('public', '/openapi.json', 'This document', async () => {
    text ??= JSON.stringify(build(), null, 2);
    return textAnswer(200, 'application/json', text);
  });
}

function open(
  verb: 'public' | 'probe',
  path: string,
  summary: string,
  handle: (exchange: Exchange) => Promise<Answer>,
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

function textAnswer(status: number, contentType: string, text: string): Answer {
  const headers = { 'Content-Type': contentType, 'Cache-Control': 'no-store' };
  return { status, headers, body: Buffer.from(text) };
}
