import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportJWK, generateKeyPair } from 'jose';
import { afterAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import * as z from 'zod';
import { type Config, ConfigError, readConfig, variableFor } from './config.js';
import { configSchema } from './config-schema.js';

const folder = mkdtempSync(join(tmpdir(), 'fenced-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function fileWith(text: string): string {
  const path = join(folder, String(files++));
  writeFileSync(path, text);
  return path;
}

const redis = { nodes: [{ name: 'a', url: 'redis://127.0.0.1:7001' }] };
const key = {
  name: 'ada',
  sha256: createHash('sha256').update('x').digest('hex'),
  verbs: ['read'],
  prefixes: ['objects/a'],
};
const secret = randomBytes(32).toString('base64');

function read(fields: object, env: Record<string, string> = {}): Config {
  return readConfig({ file: fileWith(stringify(fields)), env });
}

function problemsOf(run: () => unknown): readonly string[] {
  try {
    run();
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

test('a minimal configuration names the nodes; the gateway listens on loopback only, and warns', () => {
  const config = read({ redis });
  expect(config.listen).toMatchObject({ host: '127.0.0.1', port: 8080 });
  expect(config.credentials).toEqual({ keys: [], anonymous: true });
  expect(config.redis.nodes).toEqual([{ ...redis.nodes[0], durable: false }]);
  expect(config.warnings.join('\n')).toMatch(/no credentials .* listens on 127\.0\.0\.1 only/);
  expect(config.warnings.join('\n')).toMatch(/no signing keys/);
});

test('a complete configuration has no warnings', () => {
  const config = read({
    listen: { host: '0.0.0.0' },
    redis,
    objects: { bucket: 'documents' },
    credentials: { keys: [key] },
    signing: { keys: [{ id: 'k1', secret }] },
  });
  expect(config.warnings).toEqual([]);
  expect(config.credentials).toEqual({ keys: [key], anonymous: false });
});

test.each([
  ['0.0.0.0'],
  ['::'],
  ['10.0.0.1'],
  ['gateway.example'],
  ['127.0.0.1.example'],
  ['1270.0.0.1'],
  ['not-localhost'],
])('without credentials it does not listen on %s', (host) => {
  const [problem] = problemsOf(() => read({ listen: { host }, redis }));
  expect(problem).toMatch(/^listen\.host: must be an address of this machine alone/);
  expect(problemsOf(() => read({ listen: { host }, redis, credentials: { keys: [key] } }))).toEqual(
    [],
  );
});

test.each([['127.0.0.1'], ['127.8.8.8'], ['::1'], ['localhost']])(
  'without credentials it listens on %s',
  (host) => {
    expect(read({ listen: { host }, redis }).listen.host).toBe(host);
  },
);

test('all mistakes are reported at once, each with its field or variable', () => {
  const wrong = {
    listen: { host: '0.0.0.0', port: 70_000, prot: 1 },
    redis: {
      nodes: [
        { name: 'a', url: 'http://x' },
        { name: 'a', urlFile: join(folder, 'absent') },
      ],
    },
    objects: { bucket: '', accessKeyId: 'x' },
    records: { connectionsMax: 0 },
    credentials: { jwt: { issuer: 'x', algorithms: ['none'], jwksUrl: 'http://issuer.example' } },
    signing: { keys: [{ id: 'k1', secret: 'c2hvcnQ=' }, { id: 'k1' }] },
    sael: {},
  };
  const env = {
    FENCED_GATEWAY_LIMITS_GRACE_MS: 'soon',
    FENCED_GATEWAY_LIMITS_GRACE: '1',
    FENCED_OTHER: '1',
  };
  const problems = problemsOf(() => read(wrong, env));
  for (const expected of [
    /^listen\.port: .*65535/,
    /^listen: there is no field prot/,
    /^redis\.nodes\[0\]\.url: must be a URL that begins with redis:/,
    /^redis\.nodes\[1\]\.urlFile: the file cannot be read: ENOENT/,
    /^redis: two nodes have one name/,
    /^objects\.bucket:/,
    /^objects: needs both accessKeyId and a secret/,
    /^records\.connectionsMax:/,
    /^records: needs either url or urlFile/,
    /^credentials\.jwt\.audience:/,
    /^credentials\.jwt\.algorithms\[0\]:/,
    /^credentials\.jwt\.jwksUrl: must be an https/,
    /^signing\.keys\[0\]\.secret: must be at least 32 random bytes/,
    /^signing\.keys\[1\]: needs either secret or secretFile/,
    /^signing\.keys: two keys have one id/,
    /^the file: there is no field sael/,
    /^limits\.graceMs: .*\(FENCED_GATEWAY_LIMITS_GRACE_MS\)$/,
    /^FENCED_GATEWAY_LIMITS_GRACE: there is no such field/,
  ])
    expect(
      problems.filter((problem) => expected.test(problem)),
      String(expected),
    ).toHaveLength(1);
  expect(problems).toHaveLength(18);
});

test.each([
  [{ ...key, sha256: 'x' }, /keys\[0\]\.sha256: must be 64 hexadecimal digits/],
  [{ ...key, verbs: ['root'] }, /keys\[0\]\.verbs\[0\]/],
  [{ ...key, verbs: [] }, /keys\[0\]\.verbs/],
  [
    { ...key, prefixes: ['objects/../x'] },
    /keys\[0\]\.prefixes\[0\]: .* prefix="objects\/\.\.\/x"/,
  ],
  [{ ...key, prefixes: [''] }, /keys\[0\]\.prefixes\[0\]: must begin with leases/],
  [{ ...key, name: 'jwt:ada' }, /keys\[0\]\.name/],
  [{ ...key, key: 'in clear' }, /keys\[0\]: there is no field key/],
])('an invalid key is a mistake: %#', (wrong, problem) => {
  expect(problemsOf(() => read({ redis, credentials: { keys: [wrong] } })).join('\n')).toMatch(
    problem,
  );
});

test('the same key twice is a mistake', () => {
  const keys = [key, { ...key, name: 'bob', sha256: key.sha256.toUpperCase() }];
  expect(problemsOf(() => read({ redis, credentials: { keys } }))).toEqual([
    'credentials.keys: two keys are the same',
  ]);
});

describe('secrets', () => {
  test('come from files, without the final line end', async () => {
    const { publicKey } = await generateKeyPair('ES256');
    const jwks = { keys: [await exportJWK(publicKey)] };
    const config = read({
      redis: { nodes: [{ name: 'a', urlFile: fileWith('redis://:p@127.0.0.1:1\n') }] },
      objects: { bucket: 'b', accessKeyId: 'id', secretAccessKeyFile: fileWith('s3cret\n') },
      records: { urlFile: fileWith('postgres://u:p@h/d\n') },
      credentials: {
        jwt: {
          issuer: 'i',
          audience: 'a',
          algorithms: ['ES256'],
          jwksFile: fileWith(JSON.stringify(jwks)),
        },
      },
      signing: { keys: [{ id: 'k1', secretFile: fileWith(`${secret}\n`) }] },
    });
    expect(config.redis.nodes[0]?.url).toBe('redis://:p@127.0.0.1:1');
    expect(config.objects?.credentials).toEqual({ accessKeyId: 'id', secretAccessKey: 's3cret' });
    expect(config.records?.url).toBe('postgres://u:p@h/d');
    expect(config.credentials.jwt?.jwks).toEqual(jwks);
    expect(Buffer.from(config.signing?.keys[0]?.secret ?? []).toString('base64')).toBe(secret);
  });

  test.each([
    [
      'in the field and in a file',
      { secret, secretFile: fileWith(secret) },
      'needs either secret or',
    ],
    ['in an empty file', { secretFile: fileWith('\n') }, 'the file is empty'],
    ['in a file that is none', { secretFile: folder }, 'the file cannot be read: EISDIR'],
    ['too short', { secretFile: fileWith('c2hvcnQ=') }, 'must be at least 32 random bytes'],
    ['no base64', { secret: `${secret.slice(0, -4)}!!!!` }, 'must be at least 32 random bytes'],
  ])('%s are a problem', (_, given, problem) => {
    const problems = problemsOf(() => read({ redis, signing: { keys: [{ id: 'k1', ...given }] } }));
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(problem);
  });

  test('are in no message, whatever their mistake', () => {
    const given = {
      redis: {
        nodes: [
          { name: 'a', url: 'rediss:user:hunter2@h' },
          { name: 'b', url: { hunter2: 1 } },
        ],
      },
      objects: { bucket: 'b', secretAccessKey: 'hunter2', accessKeyId: 7 },
      records: { url: 'mysql://u:hunter2@h/d' },
      credentials: {
        keys: [{ ...key, sha256: 'hunter2' }],
        jwt: { issuer: 'i', audience: 'a', algorithms: ['ES256'], jwksFile: fileWith('hunter2') },
      },
      signing: {
        keys: [
          { id: 'k1', secretFile: fileWith('hunter2') },
          { id: 'k2', secret: 'hunter2' },
        ],
      },
    };
    const env = { FENCED_GATEWAY_REDIS_NODES: '[{hunter2: [}' };
    const problems = problemsOf(() => read(given, env));
    expect(problems.length).toBeGreaterThanOrEqual(8);
    expect(problems.join('\n')).not.toContain('hunter2');
    const broken = fileWith('signing: [hunter2\nredis: "hunter2');
    expect(problemsOf(() => readConfig({ file: broken, env: {} })).join('\n')).not.toContain(
      'hunter2',
    );
  });
});

describe('the environment', () => {
  test('overrides the file, field by field; empty variables count as not set', () => {
    const config = read(
      { redis, listen: { port: 1, host: '127.0.0.2' }, limits: { graceMs: 7 } },
      {
        FENCED_GATEWAY_LISTEN_PORT: '2',
        FENCED_GATEWAY_LIMITS_GRACE_MS: '',
        FENCED_GATEWAY_OBJECTS_BUCKET: '42',
        FENCED_GATEWAY_OBJECTS_FORCE_PATH_STYLE: 'true',
      },
    );
    expect(config.listen).toMatchObject({ port: 2, host: '127.0.0.2' });
    expect(config.limits.graceMs).toBe(7);
    expect(config.objects).toMatchObject({ bucket: '42', forcePathStyle: true });
  });

  test('may be the only source; lists are YAML or JSON', () => {
    const env = { FENCED_GATEWAY_REDIS_NODES: JSON.stringify(redis.nodes) };
    expect(readConfig({ env }).redis.nodes).toHaveLength(1);
    const yaml = { FENCED_GATEWAY_REDIS_NODES: '- {name: a, url: "redis://h:1"}' };
    expect(readConfig({ env: yaml }).redis.nodes).toHaveLength(1);
  });

  test.each(['', 'EU_', 'STAGING_2_'])(
    'may have the variables of Kubernetes for a service: FENCED_GATEWAY_%s…',
    (name) => {
      const service = {
        SERVICE_HOST: '10.0.0.1',
        SERVICE_PORT: '8080',
        SERVICE_PORT_HTTP: '8080',
        PORT: 'tcp://10.0.0.1:8080',
        PORT_8080_TCP: 'tcp://10.0.0.1:8080',
        PORT_8080_TCP_PROTO: 'tcp',
        PORT_8080_TCP_PORT: '8080',
        PORT_8080_TCP_ADDR: '10.0.0.1',
      };
      const env = {
        FENCED_GATEWAY_REDIS_NODES: JSON.stringify(redis.nodes),
        ...Object.fromEntries(
          Object.entries(service).map(([end, value]) => [`FENCED_GATEWAY_${name}${end}`, value]),
        ),
      };
      expect(readConfig({ env }).listen.port).toBe(8080);
      for (const [end, value] of [
        ['PORTS', '1'],
        ['PORT', '8081'],
        ['HOST', '10.0.0.1'],
      ]) {
        const misspelt = `FENCED_GATEWAY_LITSEN_${end}`;
        expect(problemsOf(() => readConfig({ env: { ...env, [misspelt]: value } }))).toEqual([
          `${misspelt}: there is no such field`,
        ]);
      }
    },
  );

  test('does not hide that a section of the file is not a mapping', () => {
    const problems = problemsOf(() =>
      read({ redis, listen: 3 }, { FENCED_GATEWAY_LISTEN_PORT: '1' }),
    );
    expect(problems.join('\n')).toBe('listen: must be a mapping');
  });
});

test.each([
  ['a: [', 1],
  ['a: 1\na: 2', 1],
  ['- list', 2],
  ['just text', 2],
  ['', 1],
  ['a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]', 1],
  ['__proto__: {polluted: 1}', 2],
])('a file that is not a configuration is a reported mistake: %j', (text, least) => {
  const problems = problemsOf(() => readConfig({ file: fileWith(text), env: {} }));
  expect(problems.length).toBeGreaterThanOrEqual(least);
  expect(Object({})).not.toHaveProperty('polluted');
});

test('without a file and variables, the mistakes say what to do', () => {
  const problems = problemsOf(() => readConfig({ env: {} }));
  expect(problems).toEqual([
    'name a file with --config, or set variables such as FENCED_GATEWAY_REDIS_NODES',
    'redis: is missing; it must be a mapping',
  ]);
});

test('a missing file is a mistake', () => {
  expect(problemsOf(() => readConfig({ file: join(folder, 'absent'), env: {} }))[0]).toContain(
    'ENOENT',
  );
});

test('the compose file is a valid configuration, and its container has no unneeded rights', () => {
  const text = readFileSync(new URL('../../../compose.yaml', import.meta.url), 'utf8')
    .replace(/\$\{FENCED_API_KEY_SHA256[^}]*\}/, key.sha256)
    .replace(/\$\{FENCED_SIGNING_SECRET[^}]*\}/, secret);
  const { services } = parse(text, { merge: true });
  const { gateway, ...others } = services;
  const env = { ...gateway.environment, FENCED_GATEWAY_LISTEN_HOST: '0.0.0.0' };
  const config = readConfig({ env });
  expect(config.warnings).toEqual([]);
  const hosts = [
    ...config.redis.nodes.map(({ url }) => new URL(url).hostname),
    new URL(config.records?.url ?? '').hostname,
    new URL(config.objects?.endpoint ?? '').hostname,
  ];
  expect(hosts.toSorted()).toEqual(Object.keys(others).toSorted());
  expect(gateway).toMatchObject({ read_only: true, cap_drop: ['ALL'], tmpfs: ['/tmp'] });
  expect(gateway.ports).toEqual(['127.0.0.1:8080:8080']);
  for (const other of Object.values(others)) expect(other).not.toHaveProperty('ports');
});

interface Schema {
  readonly properties?: Record<string, Schema>;
  readonly description?: string;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
}

/** The rows that the table of the documentation must have, made from the schema. */
function rowsOf(schema: Schema, path: readonly string[] = []): string[] {
  if (schema.properties !== undefined)
    return Object.entries(schema.properties).flatMap(([name, part]) =>
      rowsOf(part, [...path, name]),
    );
  const { description = 'MISSING', default: fallback, minimum, maximum } = schema;
  const initial = fallback === undefined ? '' : `\`${JSON.stringify(fallback)}\``;
  const range = maximum === undefined ? '' : ` ${minimum} to ${maximum}.`;
  return [`| \`${path.join('.')}\` | ${description}${range} | ${initial} |`];
}

test('the documentation has every field, range and default, and every field has its own variable', () => {
  const rows = rowsOf(z.toJSONSchema(configSchema, { io: 'input' }) as Schema);
  const page = readFileSync(
    new URL('../../../docs/gateway-configuration.md', import.meta.url),
    'utf8',
  );
  const table = page.split('\n').filter((line) => line.startsWith('| `'));
  expect(table).toEqual(rows);
  expect(rows.join('\n')).not.toContain('MISSING');
  const variables = rows.map((row) => variableFor((/`([^`]+)`/.exec(row)?.[1] ?? '').split('.')));
  expect(new Set(variables).size).toBe(rows.length);
  expect(variables).toContain('FENCED_GATEWAY_LIMITS_IDLE_TIMEOUT_MS');
  for (const variable of variables) expect(variable).not.toMatch(/^FENCED_GATEWAY_(SERVICE|PORT)/);
});
