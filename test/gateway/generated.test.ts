import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateGo, generatePython } from './harness/generators.js';
import { configFile, type GatewayProcess, startGateway } from './harness/process.js';
import { GatewayWorld } from './harness/world.js';

const run = promisify(execFile);
const API_KEY = randomBytes(32).toString('hex');
/** The generators are fetched and built where they were never used before: 90 s on two cores. */
const COLD_MS = 600_000;

const parts = new AsyncDisposableStack();
let gateway: GatewayProcess;
let folder: string;
let document: string;

beforeAll(async () => {
  const world = parts.use(await GatewayWorld.start());
  folder = await mkdtemp(join(tmpdir(), 'fenced-generated-'));
  parts.defer(() => rm(folder, { recursive: true }));
  const path = await configFile(world, parts);
  const config = JSON.parse(await readFile(path, 'utf8')) as object;
  const key = {
    name: 'reports',
    sha256: createHash('sha256').update(API_KEY).digest('hex'),
    verbs: ['lease', 'read', 'write', 'claim'],
    prefixes: ['leases/reports', 'objects/reports'],
  };
  const signing = { keys: [{ id: 'k1', secret: randomBytes(32).toString('base64') }] };
  await writeFile(path, JSON.stringify({ ...config, signing, credentials: { keys: [key] } }));
  gateway = await startGateway(path);
  parts.defer(async () => void (await gateway.process.kill()));
  document = join(folder, 'openapi.json');
  await writeFile(document, await (await fetch(`${gateway.url}/openapi.json`)).text());
});

afterAll(() => parts.disposeAsync());

async function play(program: string, args: readonly string[]): Promise<Record<string, unknown>> {
  const env = {
    ...process.env,
    FENCED_GATEWAY: gateway.url,
    FENCED_API_KEY: API_KEY,
    PYTHONPATH: folder,
  };
  const { stdout } = await run(program, args, { env, timeout: 60_000 });
  return JSON.parse(stdout) as Record<string, unknown>;
}

test(
  'Python: a late holder gets the problem of a stale token',
  async () => {
    const python = await generatePython(document, folder);
    const story = await play(python, [join(import.meta.dirname, 'harness', 'article.py')]);
    const [first, second] = story.tokens as [string, string];
    expect(BigInt(first)).toBeLessThan(BigInt(second));
    expect(story).toEqual({
      type: 'urn:fenced:problem:stale-token',
      presented: first,
      highest: second,
      tokens: [first, second],
      resource: 'reports/2026/total #1.txt',
      written: second,
      read: 'second',
      released: 'released',
      other: 'urn:fenced:problem:invalid-token',
    });
    const writes = gateway.log.filter(({ method }) => method === 'PUT');
    expect(writes.map(({ resource, outcome }) => [resource, outcome])).toEqual([
      ['objects/reports/2026/total #1.txt', 'ok'],
      ['objects/reports/2026/total #1.txt', 'stale-token'],
      ['objects/reports/2026/other', 'invalid-token'],
    ]);
  },
  COLD_MS,
);

test(
  'Go: the client is generated, compiled, and writes a key with slashes',
  async () => {
    const module = join(folder, 'go');
    await cp(join(import.meta.dirname, 'harness', 'go-client'), module, { recursive: true });
    expect(await play(await generateGo(document, module), [])).toEqual({
      resource: 'reports/2026/from go.txt',
      written: 200,
      read: 'go',
      other: 400,
    });
  },
  COLD_MS,
);
