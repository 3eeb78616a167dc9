import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createMetrics } from './metrics.js';

const request = {
  route: '/v1/objects/{key}',
  method: 'PUT',
  status: 200,
  durationMs: 30,
  outcome: 'ok',
};
const pool = { totalCount: 5, idleCount: 2, waitingCount: 3 };
const nodes = async () => [
  { name: 'a', admitted: true },
  { name: 'b', admitted: false },
];

test('each thing is counted where it belongs', async () => {
  const metrics = createMetrics({ nodes, pool });
  metrics.observe(request);
  metrics.observe({ ...request, status: 412, outcome: 'stale-token' });
  metrics.lockAttempt('held');
  metrics.stale('objects');
  metrics.unknown('records');
  const lines = (await metrics.text()).split('\n');
  for (const line of [
    'fenced_gateway_requests_total{route="/v1/objects/{key}",method="PUT",status="200",outcome="ok"} 1',
    'fenced_gateway_requests_total{route="/v1/objects/{key}",method="PUT",status="412",outcome="stale-token"} 1',
    'fenced_gateway_request_duration_seconds_bucket{le="0.025",route="/v1/objects/{key}",method="PUT"} 0',
    'fenced_gateway_request_duration_seconds_bucket{le="0.05",route="/v1/objects/{key}",method="PUT"} 2',
    'fenced_gateway_lock_attempts_total{outcome="held"} 1',
    'fenced_gateway_stale_writes_total{store="objects"} 1',
    'fenced_gateway_unknown_outcomes_total{store="records"} 1',
    'fenced_gateway_lock_node_admitted{node="a"} 1',
    'fenced_gateway_lock_node_admitted{node="b"} 0',
    'fenced_gateway_postgres_connections{state="busy"} 3',
    'fenced_gateway_postgres_connections{state="idle"} 2',
    'fenced_gateway_postgres_connections{state="waiting"} 3',
  ])
    expect(lines).toContain(line);
  expect(metrics.contentType).toMatch(/^text\/plain; version=0\.0\.4/);
});

test('two gateways of one process count by themselves', async () => {
  const [one, other] = [createMetrics(), createMetrics()];
  one.stale('objects');
  expect(await other.text()).not.toContain('store="objects"');
});

test('methods that strangers make up are no time series of their own', async () => {
  const metrics = createMetrics();
  for (let i = 0; i < 100; i++) metrics.observe({ ...request, method: `M${i}` });
  const lines = (await metrics.text()).split('\n');
  expect(lines.filter((line) => line.startsWith('fenced_gateway_requests_total{'))).toEqual([
    expect.stringContaining('method="other"'),
  ]);
});

test('nodes that cannot be asked hide nothing else', async () => {
  const metrics = createMetrics({ nodes: () => Promise.reject(new Error('gone')) });
  metrics.stale('objects');
  expect(await metrics.text()).toContain('fenced_gateway_stale_writes_total{store="objects"} 1');
});

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

test('every metric that the dashboard asks for exists, with the labels it asks for; and each of ours is on it', async () => {
  const metrics = createMetrics({ nodes, pool });
  metrics.observe(request);
  metrics.lockAttempt('held');
  metrics.stale('objects');
  metrics.unknown('records');
  metrics.watchLimits(() => [{ name: 'requests', limit: 2, inUse: 1 }]);
  metrics.watchLimits(() => [{ name: 'connections', limit: 4, inUse: 3 }]);
  const text = await metrics.text();
  expect(text).toContain('fenced_gateway_limit{limit="requests"} 2');
  expect(text).toContain('fenced_gateway_in_use{limit="connections"} 3');
  const series = new Map<string, Set<string>>();
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const known = series.get(name) ?? new Set();
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label);
    series.set(name, known);
  }
  const file = new URL('../../../docs/gateway-dashboard.json', import.meta.url);
  const { panels } = JSON.parse(readFileSync(file, 'utf8')) as { panels: readonly Panel[] };
  const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(8);
  const asked = new Set<string>();
  for (const query of queries) {
    const names = query.match(/\b(?:fenced|process|nodejs)_\w+/g) ?? [];
    expect(names, query).not.toEqual([]);
    const groups = [...query.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) =>
      list.split(/, */),
    );
    const filters = [...query.matchAll(/(\w+) *[=!]~? *"/g)].map(([, label = '']) => label);
    for (const name of names) {
      asked.add(name);
      expect([...series.keys()], query).toContain(name);
      for (const label of [...groups, ...filters])
        if (!['instance', 'job'].includes(label))
          expect([...(series.get(name) ?? [])], query).toContain(label);
    }
  }
  const ours = [...text.matchAll(/^# TYPE (fenced_\w+)/gm)].map(([, name = '']) => name);
  for (const name of ours)
    expect(
      [...asked].some((one) => one.startsWith(name)),
      name,
    ).toBe(true);
});
