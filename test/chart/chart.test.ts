import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { configFile, startGateway } from '../gateway/harness/process.js';
import { GatewayWorld } from '../gateway/harness/world.js';

const CHART = new URL('../../deploy/helm/fenced-gateway', import.meta.url).pathname;
const KUBERNETES = ['--kube-version', '1.31.0'];
const IMAGE = { repository: 'registry.example/fenced', digest: `sha256:${'0'.repeat(64)}` };

const parts = new AsyncDisposableStack();
let folder: string;

beforeAll(async () => {
  await helm('version').catch((cause: unknown) => {
    throw new Error('helm is missing: see https://helm.sh/docs/intro/install/', { cause });
  });
  folder = await mkdtemp(join(tmpdir(), 'fenced-chart-'));
  parts.defer(() => rm(folder, { recursive: true }));
});

afterAll(() => parts.disposeAsync());

async function helm(...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('helm', args);
  return stdout;
}

async function rendered(values: object): Promise<readonly Record<string, unknown>[]> {
  const file = join(folder, 'values.yaml');
  await writeFile(file, JSON.stringify(values));
  const text = await helm('template', 'locks', CHART, '--values', file, ...KUBERNETES);
  await helm('lint', '--strict', CHART, '--values', file, ...KUBERNETES);
  return parseAllDocuments(text).map((one) => one.toJS());
}

test('the gateway runs with the rendered configuration, and answers the probes', async () => {
  await using own = new AsyncDisposableStack();
  const world = own.use(await GatewayWorld.start());
  const { listen: _, ...config } = JSON.parse(await readFile(await configFile(world, own), 'utf8'));
  const objects = await rendered({ image: IMAGE, config });
  const [text] = objects.flatMap(({ kind, data }) =>
    kind === 'ConfigMap' ? [(data as Readonly<Record<string, string>>)['gateway.yaml']] : [],
  );
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, text ?? '');

  const [pod] = objects.flatMap(({ kind, spec }) =>
    kind === 'Deployment' ? [(spec as Deployment).template.spec] : [],
  );
  const [container] = pod?.containers ?? [];
  const env = Object.fromEntries((container?.env ?? []).map(({ name, value }) => [name, value]));
  // Several tests run on one machine, so each takes a free port.
  const ports = { FENCED_GATEWAY_LISTEN_PORT: '0', FENCED_GATEWAY_OPERATIONS_PORT: '0' };
  const gateway = await startGateway(file, { env: { ...env, ...ports } });
  own.use(gateway.process);
  const paths = [container?.livenessProbe, container?.readinessProbe].map(
    (probe) => probe?.httpGet.path,
  );
  expect(paths).toEqual(['/livez', '/readyz']);
  const { port } = new URL(gateway.operationsUrl);
  for (const path of paths) expect((await fetch(`http://127.0.0.1:${port}${path}`)).ok).toBe(true);
  // The port of the service, unlike the port of the operations, does not serve /metrics.
  expect((await fetch(`${gateway.url}/metrics`)).status).toBe(404);
});

test.each([
  [{}, '5000', 25],
  [{ drainDelayMs: 0 }, '0', 20],
  [{ drainDelayMs: 20_000, graceMs: 45_500 }, '20000', 76],
])(
  'with the limits %j, a pod that ends is served for a while, and has time',
  async (limits, delay, seconds) => {
    const config = { redis: { nodes: [] }, limits };
    const objects = await rendered({ image: IMAGE, secretName: 'fenced', config });
    const [deployment] = objects.filter(({ kind }) => kind === 'Deployment');
    const { template } = Object(deployment).spec as Deployment;
    const { containers, terminationGracePeriodSeconds } = template.spec;
    const [given] = containers[0]?.env.filter(({ name }) => name.endsWith('DRAIN_DELAY_MS')) ?? [];
    expect([given?.value, terminationGracePeriodSeconds]).toEqual([delay, seconds]);
    expect(template.metadata.annotations['checksum/secret']).toMatch(/^[0-9a-f]{64}$/);
  },
);

interface Deployment {
  readonly template: {
    readonly metadata: { readonly annotations: Readonly<Record<string, string>> };
    readonly spec: {
      readonly terminationGracePeriodSeconds: number;
      readonly containers: readonly {
        readonly env: readonly { readonly name: string; readonly value: string }[];
        readonly livenessProbe: Probe;
        readonly readinessProbe: Probe;
      }[];
    };
  };
}

interface Probe {
  readonly httpGet: { readonly path: string };
}

test.each([
  ['a tag instead of a digest', { image: { ...IMAGE, digest: 'latest' } }, 'image.digest'],
  ['a misspelt value', { replica: 3 }, 'replica'],
  ['an address that the chart sets', { config: { redis: {}, operations: {} } }, 'operations'],
])('%s is refused', async (_, values, named) => {
  const config = { redis: { nodes: [] } };
  await expect(rendered({ image: IMAGE, config, ...values })).rejects.toThrow(named);
});
