import { readFile } from 'node:fs/promises';
import { NAME_PATTERN } from '@fenced/client/protocol/path';
import { codes } from '@fenced/client/protocol/problem-codes';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RawReply, requestOf, send, typeOf } from './harness/raw.js';
import { type Front, GatewayWorld, inPath } from './harness/world.js';

interface Operation {
  readonly operationId?: string;
  readonly responses: Readonly<Record<string, { readonly content?: Record<string, object> }>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const RUNS = Number(process.env.FENCED_RUNS ?? 40);
const METHODS = ['get', 'head', 'put', 'post', 'patch', 'delete'];

let world: GatewayWorld;
let front: Front;
let document: Document;
const ajv = new Ajv2020({ strict: false });
addFormats.default(ajv);
/** The operations and statuses that were answered so far, such as `get /v1/objects/{key} 200`. */
const seen = new Set<string>();

beforeAll(async () => {
  world = await GatewayWorld.start();
  front = await world.open({ metrics: { contentType: 'text/plain', text: async () => 'up 1\n' } });
  document = (await (await fetch(`${front.url}/openapi.json`)).json()) as Document;
  ajv.addSchema(document, 'document');
});

afterAll(async () => {
  await front?.[Symbol.asyncDispose]();
  await world?.[Symbol.asyncDispose]();
});

/** Sends a request of that operation, and compares the reply with the document. */
async function call(
  method: string,
  path: string,
  target: string,
  headers: readonly (readonly [string, string])[] = [],
  body: string | Buffer = '',
): Promise<RawReply> {
  const [reply] = await send(front.url, requestOf(method.toUpperCase(), target, headers, body));
  if (reply === undefined) throw new Error(`no reply: ${method} ${target}`);
  const pointer = [path, method, 'responses', String(reply.status)];
  const response = document.paths[path]?.[method]?.responses[reply.status];
  if (response === undefined)
    throw new Error(`${reply.status} is not documented: ${method} ${target} ${reply.body}`);
  seen.add(`${method} ${path} ${reply.status}`);
  if (method === 'head' || reply.status === 304) {
    expect(reply.body).toBe('');
    return reply;
  }
  const type = reply.headers['content-type'] ?? 'none';
  const known = Object.keys(response.content ?? {});
  const media = known.find((one) => one === type) ?? known.find((one) => one === '*/*');
  expect(media, `${type} of ${method} ${target}`).toBeDefined();
  if (type !== 'application/json' && type !== 'application/problem+json') return reply;
  if (media === '*/*') return reply;
  const reference = [...pointer, 'content', media ?? '', 'schema']
    .map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')))
    .join('/');
  const validate = ajv.compile({ $ref: `document#/paths/${reference}` });
  const isValid = validate(JSON.parse(reply.body));
  expect([isValid, validate.errors, reply.body]).toEqual([true, null, reply.body]);
  return reply;
}

test('the document is OpenAPI 3.1, and has exactly the routes of Express', async () => {
  const checked = await new Validator().validate({ ...document });
  expect(checked).toMatchObject({ valid: true });
  const routes = front.app.router.stack.flatMap(({ route }) => {
    if (route === undefined) return [];
    const name = route.path.replace(/[:*](\w+)/g, '{$1}');
    const { methods } = route as unknown as { methods: Record<string, boolean> };
    return Object.keys(methods).flatMap((method) =>
      METHODS.includes(method) ? [`${method} ${name}`] : [],
    );
  });
  const described = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).flatMap((method) =>
      METHODS.includes(method) ? [`${method} ${path}`] : [],
    ),
  );
  // The document leaves /mcp out, because the protocol MCP describes its tools itself.
  expect(new Set(routes)).toEqual(new Set([...described, 'post /mcp']));
  expect(described.length).toBeGreaterThan(20);
});

test('each operation has a name, and each problem one schema', () => {
  const operations = Object.values(document.paths).flatMap((path) =>
    METHODS.flatMap((method) => path[method] ?? []),
  );
  const names = operations.map(({ operationId = '' }) => operationId);
  for (const name of names) expect(name).toMatch(/^[a-z][A-Za-z]+$/);
  expect(new Set(names).size).toBe(names.length);
  const { schemas } = (document as unknown as { components: { schemas: Record<string, object> } })
    .components;
  const referred = new Set(
    operations.flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, { content = {} }]) => {
        const { schema = {} } = Object(content['application/problem+json']);
        const { $ref, oneOf = [] } = schema as { $ref?: string; oneOf?: { $ref: string }[] };
        const all = [...($ref === undefined ? [] : [$ref]), ...oneOf.map((one) => one.$ref)];
        // Replies to HEAD have no body, and those of /readyz are plain text.
        if (Object.keys(content)[0] === 'application/problem+json')
          expect([status, all.length]).not.toEqual([status, 0]);
        return all;
      }),
    ),
  );
  expect(referred.size).toBeGreaterThan(20);
  for (const reference of referred) {
    const name = /^#\/components\/schemas\/([A-Z]\w+Problem)$/.exec(reference)?.[1] ?? '';
    expect(schemas[name]).toMatchObject({
      type: 'object',
      properties: { type: { enum: [expect.any(String)] } },
    });
  }
});

test('the published document is the served one, and the page explains every problem', async () => {
  const served = await (await fetch(`${front.url}/openapi.json`)).text();
  await expect(`${served}\n`).toMatchFileSnapshot('../../docs/openapi.json');
  const explained = await readFile(new URL('../../docs/gateway.md', import.meta.url), 'utf8');
  for (const code of codes) expect(explained).toContain(`| \`${code}\` |`);
});

test('every component is used', () => {
  const { components } = document as unknown as { components: Record<string, object> };
  const text = JSON.stringify(document);
  const unused = Object.keys(components.schemas ?? {}).filter(
    (name) => !text.includes(`"#/components/schemas/${name}"`),
  );
  expect(unused).toEqual([]);
});

const JSON_TYPE = ['Content-Type', 'application/json'] as const;
const token = (text: string) => ['Fencing-Token', text] as const;

test('every documented request gets a documented answer', async () => {
  const leases = '/v1/leases/{resource}';
  const times = (body: object) => [[JSON_TYPE], JSON.stringify(body)] as const;
  const granted = await call('post', leases, '/v1/leases/a/b', ...times({ ttlMs: 5_000 }));
  const { leaseId } = JSON.parse(granted.body) as { leaseId: string };
  await call('post', leases, '/v1/leases/a/b', ...times({ ttlMs: 5_000, waitMs: 1 }));
  await call('post', leases, '/v1/leases/a/b', ...times({ ttlMs: 1 }));
  await call('post', leases, '/v1/leases/a/b', ...times({ ttlMs: 5_000, more: 1 }));
  await call('post', leases, '/v1/leases/a/b', [], '{}');
  const one = `${leases}/{leaseId}`;
  await call('patch', one, `/v1/leases/a/b/${leaseId}`, ...times({ ttlMs: 5_000 }));
  await call('patch', one, '/v1/leases/a/b/none', ...times({ ttlMs: 5_000 }));
  await call('delete', one, `/v1/leases/a/b/${leaseId}`);
  await call('patch', one, `/v1/leases/a/b/${leaseId}`, ...times({ ttlMs: 5_000 }));

  const sets = '/v1/lease-sets';
  const both = { resources: ['a', 'b'], ttlMs: 5_000 };
  const set = await call('post', sets, sets, ...times(both));
  await call('post', sets, sets, ...times(both));
  await call('post', sets, sets, ...times({ ...both, resources: [] }));
  await call('post', sets, sets, ...times({ ...both, resources: ['a', '..'] }));
  const { leaseId: id } = JSON.parse(set.body) as { leaseId: string };
  const of = (verb: string, body: object) =>
    call('post', `${sets}/{leaseId}/${verb}`, `${sets}/${id}/${verb}`, ...times(body));
  await of('extend', both);
  await of('release', both);
  await of('release', { resources: both.resources });
  await of('extend', both);

  for (const [path, target] of [
    ['/v1/objects/{key}', '/v1/objects/a/b'],
    ['/v1/records/{collection}/{id}', '/v1/records/a/b'],
  ] as const) {
    await call('get', path, target);
    await call('head', path, target);
    await call('put', path, target, [JSON_TYPE], '1');
    const put = await call('put', path, target, [JSON_TYPE, token('5')], '{"a":1}');
    await call('put', path, target, [JSON_TYPE, token('4')], '1');
    await call('put', path, target, [JSON_TYPE, token('x')], '1');
    await call('put', path, target, [JSON_TYPE, token('5'), ['If-None-Match', '*']], '1');
    await call('put', path, target, [JSON_TYPE, token('5'), ['Content-Encoding', 'br']], '1');
    const etag = put.headers.etag ?? '';
    await call('get', path, target);
    await call('get', path, target, [token('5')]);
    await call('get', path, target, [['If-None-Match', '*']]);
    await call('head', path, target, [['If-None-Match', '*']]);
    await call('head', path, target);
    await call('get', path, target, [['If-Match', etag.replace(/.$/, 'x"')]]);
    await call('post', `${path}/claim`, `${target}/claim`, [token('7')]);
    await call('post', `${path}/claim`, `${target}/claim`, [token('6')]);
    await call('post', `${path}/claim`, `${target}/claim`);
    for (const headers of [[token('7')], [token('6')], []])
      await call('post', `${path}/claim-and-get`, `${target}/claim-and-get`, headers);
    await call('post', `${path}/claim-and-get`, `${target}-none/claim-and-get`, [token('7')]);
    if (target.startsWith('/v1/objects')) {
      await call('get', path, target, [['Range', 'bytes=1-2']]);
      await call('get', path, target, [['Range', 'bytes=99-']]);
    }
    const { writeId } = JSON.parse(put.body) as { writeId: string };
    await call('get', '/v1/writes/{writeId}', `/v1/writes/${writeId}`);
    await call('delete', path, target, [token('7')]);
  }
  const ratchet = '/v1/ratchets/{kind}/{resource}';
  for (const kind of ['s3', 'records', 'postgres', 'none'])
    await call('get', ratchet, `/v1/ratchets/${kind}/a/b`);
  for (const path of ['/livez', '/readyz', '/metrics', '/openapi.json'])
    for (const method of ['get', 'head']) await call(method, path, path);

  const wanted = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, { responses }]) =>
      Object.keys(responses ?? {}).flatMap((status) =>
        Number(status) < 400 ? [`${method} ${path} ${status}`] : [],
      ),
    ),
  );
  expect(wanted.filter((one) => !seen.has(one))).toEqual([]);
});

interface Schema {
  readonly $ref?: string;
  readonly type?: string;
  readonly pattern?: string;
  readonly enum?: readonly string[];
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

/** Any value that fits a schema, as a client that knows only the document would make it. */
function fitting(schema: Schema): fc.Arbitrary<unknown> {
  if (schema.$ref !== undefined) {
    const { components } = document as unknown as { components: { schemas: object } };
    return fitting(Object(components.schemas)[schema.$ref.split('/').at(-1) ?? '']);
  }
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.type === 'integer')
    return fc.integer({ min: schema.minimum ?? 0, max: schema.maximum ?? 2 ** 31 });
  if (schema.type === 'array')
    return fc.uniqueArray(fitting(schema.items ?? {}), {
      minLength: schema.minItems ?? 0,
      maxLength: Math.min(5, schema.maxItems ?? 5),
      selector: String,
    });
  if (schema.type === 'object') {
    const { properties = {}, required = [] } = schema;
    const all: Record<string, fc.Arbitrary<unknown>> = Object.fromEntries(
      Object.entries(properties).map(([name, one]) => [name, fitting(one)]),
    );
    return fc.record(all, { requiredKeys: [...required] });
  }
  const { minLength = 0, maxLength = 1_000 } = schema;
  const texts = schema.pattern ? fc.stringMatching(new RegExp(schema.pattern)) : fc.string();
  // A pattern cannot say that a name is in the normal form C, so the descriptions do.
  return texts.filter(
    (text) =>
      text.length >= minLength &&
      text.length <= maxLength &&
      text.isWellFormed() &&
      text === text.normalize('NFC'),
  );
}

interface Parameter {
  readonly in: 'path' | 'header';
  readonly name: string;
  readonly schema: Schema;
}

/** Problems that say no more than that a request did not fit the document. */
const MALFORMED = ['invalid-request', 'invalid-path', 'no-such-route', 'unsupported-media-type'];

describe('a request that fits the document is never called malformed', () => {
  test.each([
    ['post', '/v1/leases/{resource}'],
    ['patch', '/v1/leases/{resource}/{leaseId}'],
    ['delete', '/v1/leases/{resource}/{leaseId}'],
    ['post', '/v1/lease-sets'],
    ['post', '/v1/lease-sets/{leaseId}/extend'],
    ['get', '/v1/objects/{key}'],
    ['delete', '/v1/records/{collection}/{id}'],
    ['post', '/v1/records/{collection}/{id}/claim'],
    ['get', '/v1/ratchets/{kind}/{resource}'],
  ])('%s %s', async (method, path) => {
    const { parameters = [], requestBody } = Object(document.paths[path]?.[method]) as {
      readonly parameters?: readonly Parameter[];
      readonly requestBody?: { readonly content: Record<string, { readonly schema: Schema }> };
    };
    const given = Object.fromEntries(parameters.map((one) => [one.name, fitting(one.schema)]));
    // No pattern says what percent-encoded bytes must be, so the description does: a name.
    if (given['Fencing-Resource'] !== undefined)
      given['Fencing-Resource'] = fc
        .webSegment()
        .filter((text) => NAME_PATTERN.test(decodeURIComponent(text)));
    const body = requestBody?.content['application/json']?.schema;
    await fc.assert(
      fc.asyncProperty(
        fc.record(given, {
          requiredKeys: parameters.flatMap((one) => (one.in === 'path' ? [one.name] : [])),
        }),
        body ? fitting(body) : fc.constant(undefined),
        async (values, sent) => {
          const target = path.replace(/\{(\w+)\}/g, (_, name) =>
            encodeURIComponent(String(Object(values)[name])),
          );
          // A wait would only take time, and the names of records have two segments.
          const waiting = sent !== undefined && Object(sent).waitMs !== undefined;
          const headers = parameters.flatMap(({ in: place, name }) =>
            place === 'header' && Object(values)[name] !== undefined
              ? [[name, String(Object(values)[name])] as const]
              : [],
          );
          const both = ['If-Match', 'If-None-Match'].every((name) =>
            headers.some(([one]) => one === name),
          );
          const isRecords = Object(values).kind === 'records';
          fc.pre(!both && (!isRecords || /^[^/]+\/[^/]+$/.test(String(Object(values).resource))));
          const text =
            sent === undefined
              ? ''
              : JSON.stringify(waiting ? { ...Object(sent), waitMs: 0 } : sent);
          const [reply] = await send(
            front.url,
            requestOf(
              method.toUpperCase(),
              target,
              [...headers, ...(text === '' ? [] : [JSON_TYPE])],
              text,
            ),
          );
          expect(MALFORMED, `${target} ${text} ${headers} ${reply?.body}`).not.toContain(
            typeOf(reply),
          );
        },
      ),
      { numRuns: RUNS },
    );
  });
});

/** Parts of paths that typing errors and fuzzers send. */
const rawSegment = fc.oneof(
  fc.constantFrom('a', 'b', '.', '..', '%2e', '%2E%2e', '%2F', '%5c', '%00', '%', '%zz', '%ff', ''),
  fc.constantFrom('%C3%A4', 'a%CC%88', '%ED%A0%80', '%F0%9F%92%A9', '\\', ' ', '?', '#', ';', '@'),
  fc.constantFrom('claim', 'fencing-', '.fenced-probe', '\u00e4', '{}', '~', '%252e', '*', '$'),
  fc.string({ unit: 'binary-ascii', maxLength: 8 }).map((text) => text.replace(/[\r\n]/g, '')),
  fc
    .string({ unit: 'grapheme', maxLength: 8 })
    .map((text) => encodeURIComponent(text.toWellFormed())),
);
const rawPath = fc.oneof(
  fc.constantFrom('fuzz/a', 'fuzz/b', 'fuzz/c'),
  fc.array(rawSegment, { minLength: 1, maxLength: 4 }).map((all) => all.join('/')),
);
const headerText = fc
  .string({ unit: 'binary-ascii', maxLength: 20 })
  .map((text) => text.replace(/[^\x20-\x7e]/g, ''));
const someHeader = fc.oneof(
  fc.tuple(
    fc.constant('Fencing-Token'),
    fc.oneof(headerText, fc.bigInt().map(String), fc.constantFrom('1', '7', '9223372036854775807')),
  ),
  fc.tuple(
    fc.constantFrom('If-Match', 'If-None-Match', 'If-Range'),
    fc.oneof(headerText, fc.constantFrom('*', '"1"', 'W/"1"', '"')),
  ),
  fc.tuple(
    fc.constant('Range'),
    fc.oneof(headerText, fc.constantFrom('bytes=0-', 'bytes=-1', 'bytes=1-0')),
  ),
  fc.tuple(
    fc.constant('Fencing-Resource'),
    fc.oneof(
      rawPath.map((text) => text.replace(/[^\x21-\x7e]/g, '')),
      headerText,
    ),
  ),
  fc.tuple(
    fc.constantFrom(
      'Content-Type',
      'Accept',
      'Content-Encoding',
      'Cache-Control',
      'Content-Language',
      'Fencing-Meta-A',
      'Fencing-Meta-Fencing-Token',
      'Fencing-Meta-a_b',
      'X-Request-Id',
      'traceparent',
      'Authorization',
    ),
    fc.oneof(headerText, fc.constantFrom('application/json', 'text/plain')),
  ),
);
const someBody = fc.oneof(
  fc.jsonValue().map((value) => JSON.stringify(value)),
  fc
    .record(
      {
        ttlMs: fc.oneof(fc.integer(), fc.double(), fc.constantFrom(10, 100, null, '5')),
        waitMs: fc.oneof(fc.integer(), fc.constantFrom(0, 5)),
      },
      { requiredKeys: [] },
    )
    .map((value) => JSON.stringify(value)),
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.constantFrom('', '{', '[[[[', '"\\ud800"', '"\\u0000"', '\ufeff1', '[1,'.repeat(5_000)),
);

describe('fuzzing', () => {
  test.each(METHODS)(
    '%s with arbitrary input gets a documented answer, and never a failure',
    async (method) => {
      const templates = Object.entries(document.paths).filter(
        ([path, operations]) => operations[method] !== undefined && path.startsWith('/v1/'),
      );
      const targets = templates.map(([path]) => path.split('/{')[0] ?? '');
      const claims = method === 'post' ? ['', '/claim', '/claim-and-get'] : [''];
      await fc.assert(
        fc.asyncProperty(
          ...[fc.constantFrom(...targets), rawPath, fc.constantFrom(...claims)],
          fc.uniqueArray(someHeader, { maxLength: 5, selector: ([name]) => name }),
          fc.tuple(fc.boolean(), someBody),
          async (prefix, path, suffix, headers, [isJson, body]) => {
            const all =
              isJson && !headers.some(([name]) => name === 'Content-Type')
                ? [...headers, JSON_TYPE]
                : headers;
            const request = requestOf(
              method.toUpperCase(),
              `${prefix}/${path}${suffix}`,
              all,
              method === 'get' || method === 'head' ? '' : body,
            );
            const [reply] = await send(front.url, request);
            expect(reply?.status).toBeGreaterThanOrEqual(200);
            expect(reply?.status).toBeLessThan(500);
            if ((reply?.status ?? 0) < 400 || method === 'head') return;
            expect(reply?.headers['content-type']).toBe('application/problem+json');
            const problem = JSON.parse(reply?.body ?? '') as object;
            expect(problem).toMatchObject({
              type: expect.stringMatching(/^urn:fenced:problem:[a-z-]+$/),
              title: expect.any(String),
              status: reply?.status,
              detail: expect.any(String),
            });
            expect(reply?.body).not.toMatch(/node_modules|\.js:\d+|\bat \w+ \(/);
          },
        ),
        { numRuns: RUNS * targets.length },
      );
    },
    120_000,
  );

  test('stored JSON comes back unchanged', async () => {
    const write = (body: string) =>
      call(
        'put',
        '/v1/records/{collection}/{id}',
        '/v1/records/fuzz/1',
        [JSON_TYPE, token('1')],
        body,
      );
    await fc.assert(
      fc.asyncProperty(fc.jsonValue({ noUnicodeString: false }), async (value) => {
        const body = JSON.stringify(value);
        const { status } = await write(body);
        // PostgreSQL cannot store JSON with NUL or a lone surrogate, so only that is refused.
        if (status === 400) {
          expect(body).toMatch(/\\u0000|\\ud[89a-f]/i);
          return;
        }
        const read = await fetch(`${front.url}/v1/records/fuzz/1`);
        expect(await read.json()).toEqual(
          JSON.parse(body.replace(/(?<![\w.\\"])-0(?![\d.])/g, '0')),
        );
      }),
      { numRuns: RUNS },
    );
  });
});

test('names in every script are stored unchanged', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 10 }), {
        minLength: 1,
        maxLength: 3,
      }),
      async (segments) => {
        const name = segments.join('/');
        const isPlain = segments.every(
          (one) => one === one.normalize('NFC') && !/[\p{Cc}\\/]|^\.\.?$/u.test(one),
        );
        fc.pre(isPlain && !name.endsWith('/claim'));
        const address = `${front.url}/v1/objects/${inPath(name)}`;
        const written = await fetch(address, {
          method: 'PUT',
          body: name,
          headers: { 'Fencing-Token': '1' },
        });
        expect([name, written.status]).toEqual([name, 200]);
        expect(await front.objects.highest(name)).toBe(1n);
        expect(await (await fetch(address)).text()).toBe(name);
      },
    ),
    { numRuns: RUNS },
  );
}, 120_000);
