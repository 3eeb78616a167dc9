import type { Route } from './exchange.js';
import { nameOfRoute } from './gate.js';
import { operations } from './openapi-operations.js';
import { components, type Part } from './openapi-parts.js';

const SHARED: readonly string[] = ['parameters'];

/** The OpenAPI 3.1 document of a gateway with these routes. Invariant: each of their methods is described. */
export function openApiOf(routes: readonly Route[]): Part {
  const paths = routes.map(({ path, methods }) => {
    const name = nameOfRoute(path);
    const described: Part = operations[name] ?? {};
    const wanted = [...SHARED, ...Object.keys(methods)];
    const missing = Object.keys(methods).find((method) => described[method] === undefined);
    if (missing !== undefined) throw new Error(`the document has no ${missing} ${name}`);
    return [
      name,
      Object.fromEntries(Object.entries(described).filter(([key]) => wanted.includes(key))),
    ];
  });
  return {
    openapi: '3.1.0',
    info: {
      title: 'Fenced',
      version: '1',
      description:
        'Leases with fencing tokens, and storage that refuses a token lower than the highest it has seen.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }],
    paths: Object.fromEntries(paths),
    components,
  };
}
