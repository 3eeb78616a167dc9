import './node-version.js';
import { METHODS } from 'node:http';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { LimitUse } from './concurrency-limit.js';
import type { EndedRequest } from './ended-request.js';
import type { NodeVote } from './services.js';

/** Values that each scrape reads anew. */
export interface MetricsSources {
  /** The status of the lock's nodes. */
  readonly nodes?: () => Promise<readonly NodeVote[]>;
  /** A `pg.Pool`. */
  readonly pool?: {
    readonly totalCount: number;
    readonly idleCount: number;
    readonly waitingCount: number;
  };
  /** Lines of the log that were dropped so far. */
  readonly droppedLogLines?: () => number;
}

/** The members of an `EndedRequest` that are counted. */
export type RequestObservation = Pick<
  EndedRequest,
  'route' | 'method' | 'status' | 'durationMs' | 'outcome' | 'resource'
>;

export interface Metrics {
  /** Counts a request that has ended. */
  observe(request: RequestObservation): void;
  /** Adds limits whose use the metrics show. */
  watchLimits(uses: () => readonly LimitUse[]): void;
  /** All metrics, as Prometheus reads them. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** The routes that acquire leases. */
const ACQUIRING: readonly unknown[] = ['/v1/leases/{resource}', '/v1/lease-sets'];
/** From a round trip on loopback up to a long wait for a lease. */
const DURATION_BUCKETS_S = [
  ...[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5],
  ...[1, 2.5, 5, 10, 30, 60],
];

/**
 * Metrics for Prometheus, of a gateway and of its process. Each gateway of a process counts only
 * its own requests.
 */
export function createMetrics(sources: MetricsSources = {}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  watch(sources, registers);
  const counter = (name: string, help: string, ...labelNames: string[]): Counter =>
    new Counter({ name: `fenced_gateway_${name}_total`, help, labelNames, registers });
  const labels = ['route', 'method', 'status', 'outcome'];
  const requests = counter('requests', 'Requests that have ended.', ...labels);
  const durations = new Histogram({
    name: 'fenced_gateway_request_duration_seconds',
    help: 'From the headers of a request to the end of its answer.',
    labelNames: ['route', 'method'],
    buckets: DURATION_BUCKETS_S,
    registers,
  });
  const leases = counter('lease_requests', 'Requests for a lease.', 'outcome');
  const stale = counter('stale_writes', 'Writes refused because of a stale token.', 'store');
  const unknown = counter('unknown_outcomes', 'Writes whose outcome is unknown.', 'store');
  const limits: (() => readonly LimitUse[])[] = [];
  watchLimits(() => limits.flatMap((uses) => uses()), registers);
  return {
    observe: ({ route, method, status, durationMs, outcome, resource }) => {
      const about = {
        route: route ?? 'none',
        method: METHODS.includes(method) ? method : 'other',
      };
      requests.inc({ ...about, status: String(status), outcome });
      durations.observe(about, durationMs / 1_000);
      if (ACQUIRING.includes(route))
        leases.inc({ outcome: outcome === 'ok' ? 'acquired' : outcome });
      const store = resource?.split('/', 1)[0] ?? 'none';
      if (outcome === 'stale-token') stale.inc({ store });
      if (outcome === 'outcome-unknown') unknown.inc({ store });
    },
    watchLimits: (uses) => void limits.push(uses),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

function watchLimits(uses: () => readonly LimitUse[], registers: Registry[]): void {
  const gauge = (name: string, help: string, value: (use: LimitUse) => number): Gauge =>
    new Gauge({
      name,
      help,
      registers,
      labelNames: ['limit'],
      collect() {
        for (const use of uses()) this.set({ limit: use.name }, value(use));
      },
    });
  gauge('fenced_gateway_limit', 'The limit.', ({ limit }) => limit);
  gauge('fenced_gateway_in_use', 'The part of a limit that is in use.', ({ inUse }) => inUse);
}

/** Values that each scrape reads anew. */
function watch({ nodes, pool, droppedLogLines }: MetricsSources, registers: Registry[]): void {
  if (droppedLogLines !== undefined)
    new Counter({
      name: 'fenced_gateway_dropped_log_lines_total',
      help: 'Lines of the log that were dropped, because they could not be written.',
      registers,
      collect() {
        this.reset();
        this.inc(droppedLogLines());
      },
    });
  if (nodes !== undefined)
    new Gauge({
      name: 'fenced_gateway_lock_node_voting',
      help: '1 if a lock node answers and its vote counts, else 0.',
      labelNames: ['node'],
      registers,
      async collect() {
        // If the lock nodes do not answer, this gauge is left out. Just then, the other metrics are
        // needed.
        const states = await nodes().catch(() => []);
        this.reset();
        for (const { name, reachable, noVote = null } of states)
          this.set({ node: name }, reachable && noVote === null ? 1 : 0);
      },
    });
  if (pool !== undefined)
    new Gauge({
      name: 'fenced_gateway_postgres_connections',
      help: 'Connections to Postgres that are busy or idle, and requests that wait for one.',
      labelNames: ['state'],
      registers,
      collect() {
        this.set({ state: 'busy' }, pool.totalCount - pool.idleCount);
        this.set({ state: 'idle' }, pool.idleCount);
        this.set({ state: 'waiting' }, pool.waitingCount);
      },
    });
}
