import {
  createDocument,
  type oas31,
  type ZodOpenApiOperationObject,
  type ZodOpenApiResponseObject,
} from 'zod-openapi';
import type { Route } from './exchange.js';

/** The OpenAPI 3.1 document of a gateway with these routes. */
export function openApiOf(routes: readonly Route[]): oas31.OpenAPIObject {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const { method, path, operation } of routes) {
    const name = nameOfPath(path);
    paths[name] = { ...paths[name], [method]: operation };
  }
  return createDocument(
    {
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
      paths,
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            description:
              'An API key or a JSON Web Token. A gateway without credentials asks for none.',
          },
        },
      },
    },
    {
      // Clients must accept unknown members, because a later release may add some.
      override: ({ zodSchema: { _zod }, jsonSchema }) => {
        if (_zod.def.type === 'object' && _zod.def.catchall === undefined)
          delete jsonSchema.additionalProperties;
      },
    },
  ) as oas31.OpenAPIObject;
}

/** A path of Express as OpenAPI writes it: `/v1/objects/{key}` for `/v1/objects/*key`. */
export function nameOfPath(path: string): string {
  return path.replace(/[:*](\w+)/g, '{$1}');
}

/** A GET route, and the HEAD route that answers with the same headers. HEAD has no ranges. */
export function withHead(
  get: Route,
  head: Pick<ZodOpenApiOperationObject, 'operationId' | 'requestParams'>,
): readonly Route[] {
  const wholes = Object.entries(get.operation.responses).filter(
    ([status]) => status !== '206' && status !== '416',
  );
  const responses = wholes.map(([status, response]) => {
    const { content: _, ...withoutBody } = response as ZodOpenApiResponseObject;
    return [status, withoutBody];
  });
  const operation = {
    ...get.operation,
    ...head,
    summary: 'The headers of GET, without a body',
    responses: Object.fromEntries(responses),
  };
  return [get, { ...get, method: 'head', operation }];
}
