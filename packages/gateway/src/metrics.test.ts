import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { createMetrics } from './metrics.js';

const request = {
  route: '/v1/objects/{key}',
  method: 'PUT',
  status: 200,
  durationMs: 30,
  outcome: 'ok',
  resource: 'objects/a',
};
const lease = {
  ...request,
  route: '/v1/leases/{resource}',
  method: 'POST',
  resource: 'leases/a',
};
const unknown = { ...request, resource: 'records/a/b', status: 504, outcome: 'outcome-unknown' };
const stale = { ...request, status: 412, outcome: 'stale-token' };
const pool = { totalCount: 5, idleCount: 2, waitingCount: 3 };
const nodes = async () => [
  { name: 'a', reachable: true, noVote: null },
  { name: 'b', reachable: true, noVote: 'new' },
];

test('each request is counted under its route, outcome and store', async () => {
  const metrics = createMetrics({ nodes, pool });
  metrics.observe(request);
  metrics.observe(stale);
  metrics.observe(unknown);
  metrics.observe({ ...lease, status: 201 });
  metrics.observe({ ...lease, status: 409, outcome: 'held' });
  const lines = (await metrics.text()).split('\n');
  for (const line of [
    'fenced_gateway_requests_total{route="/v1/objects/{key}",method="PUT",status="200",outcome="ok"} 1',
    'fenced_gateway_requests_total{route="/v1/objects/{key}",method="PUT",status="412",outcome="stale-token"} 1',
    'fenced_gateway_request_duration_seconds_bucket{le="0.025",route="/v1/objects/{key}",method="PUT"} 0',
    'fenced_gateway_request_duration_seconds_bucket{le="0.05",route="/v1/objects/{key}",method="PUT"} 3',
    'fenced_gateway_lease_requests_total{outcome="acquired"} 1',
    'fenced_gateway_lease_requests_total{outcome="held"} 1',
    'fenced_gateway_stale_writes_total{store="objects"} 1',
    'fenced_gateway_unknown_outcomes_total{store="records"} 1',
    'fenced_gateway_lock_node_voting{node="a"} 1',
    'fenced_gateway_lock_node_voting{node="b"} 0',
    'fenced_gateway_postgres_connections{state="busy"} 3',
    'fenced_gateway_postgres_connections{state="idle"} 2',
    'fenced_gateway_postgres_connections{state="waiting"} 3',
  ])
    expect(lines).toContain(line);
  expect(metrics.contentType).toMatch(/^text\/plain; version=0\.0\.4/);
});

test('two gateways of one process have counts of their own', async () => {
  const [one, other] = [createMetrics(), createMetrics()];
  one.observe(stale);
  expect(await other.text()).not.toContain('store="objects"');
});

test('invented methods share one time series', async () => {
  const metrics = createMetrics();
  for (let i = 0; i < 100; i++) metrics.observe({ ...request, method: `M${i}` });
  const lines = (await metrics.text()).split('\n');
  expect(lines.filter((line) => line.startsWith('fenced_gateway_requests_total{'))).toEqual([
    expect.stringContaining('method="other"'),
  ]);
});

test('lock nodes without an answer hide no other metric', async () => {
  const metrics = createMetrics({ nodes: () => Promise.reject(new Error('gone')) });
  metrics.observe(stale);
  expect(await metrics.text()).toContain('fenced_gateway_stale_writes_total{store="objects"} 1');
});

interface Alerts {
  readonly groups: readonly { readonly rules: readonly { readonly expr: string }[] }[];
}

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

test('dashboard and alerts ask for existing metrics with their labels, and the dashboard shows all', async () => {
  const metrics = createMetrics({ nodes, pool, droppedLogLines: () => 7 });
  metrics.observe(request);
  for (const one of [lease, stale, unknown]) metrics.observe(one);
  metrics.watchLimits(() => [{ name: 'requests', limit: 2, inUse: 1 }]);
  metrics.watchLimits(() => [{ name: 'connections', limit: 4, inUse: 3 }]);
  const text = await metrics.text();
  expect(text).toContain('fenced_gateway_limit{limit="requests"} 2');
  expect(text).toContain('fenced_gateway_in_use{limit="connections"} 3');
  expect(text).toMatch(/^fenced_gateway_dropped_log_lines_total 7$/m);
  const series = new Map<string, Set<string>>();
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const known = series.get(name) ?? new Set();
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label);
    series.set(name, known);
  }
  const deployed = (file: string): string =>
    readFileSync(new URL(`../../../deploy/${file}`, import.meta.url), 'utf8');
  const { panels } = JSON.parse(deployed('grafana/gateway.json')) as { panels: readonly Panel[] };
  const shown = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  expect(shown.length).toBeGreaterThan(8);
  const { groups: alerts } = parse(deployed('prometheus/gateway.yaml')) as Alerts;
  const watched = alerts.flatMap(({ rules }) => rules.map(({ expr }) => expr));
  expect(watched.length).toBeGreaterThan(5);
  const asked = new Set<string>();
  for (const query of [...shown, ...watched]) {
    const names = query.match(/\b(?:fenced|process|nodejs)_\w+/g) ?? [];
    expect(names, query).not.toEqual([]);
    const groups = [...query.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) =>
      list.split(/, */),
    );
    const filters = [...query.matchAll(/(\w+) *[=!]~? *"/g)].map(([, label = '']) => label);
    for (const name of names) {
      if (shown.includes(query)) asked.add(name);
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
