import './node-version.js';
import { METHODS } from 'node:http';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { RoomUse } from './room.js';

/** A request that has ended. */
export interface RequestObservation {
  /** The pattern and not the path, as `/v1/objects/{key}`: each value is a time series of its own. */
  readonly route: string;
  readonly method: string;
  readonly status: number;
  readonly durationMs: number;
  /** `ok`, or the code of the problem. */
  readonly outcome: string;
}

/** What a scrape asks for. Each is asked anew every time. */
export interface MetricsSources {
  /** Of every node of the lock, whether its vote counts. */
  readonly nodes?: () => Promise<readonly { readonly name: string; readonly admitted: boolean }[]>;
  /** The pool of connections to Postgres, as `pg.Pool` counts them. */
  readonly pool?: {
    readonly totalCount: number;
    readonly idleCount: number;
    readonly waitingCount: number;
  };
}

export interface Metrics {
  observe(request: RequestObservation): void;
  /** @param outcome `acquired`, or why not */
  lockAttempt(outcome: string): void;
  /** A write was refused, as its token was out of date. */
  stale(store: string): void;
  /** A write was answered with "unknown". */
  unknown(store: string): void;
  /** Shows how much of these limits is in use, besides those of earlier calls. */
  watchLimits(uses: () => readonly RoomUse[]): void;
  /** All of them, as Prometheus reads them. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** From a round trip on loopback up to a long wait for a lease. */
const DURATION_BUCKETS_S = [
  ...[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5],
  ...[1, 2.5, 5, 10, 30, 60],
];

/** Counts for Prometheus, beside those of the process itself. They belong to the returned object: two gateways of one process keep apart. */
export function createMetrics(sources: MetricsSources = {}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  watch(sources, registers);
  const requests = new Counter({
    name: 'fenced_gateway_requests_total',
    help: 'Requests that have ended.',
    labelNames: ['route', 'method', 'status', 'outcome'],
    registers,
  });
  const durations = new Histogram({
    name: 'fenced_gateway_request_duration_seconds',
    help: 'From the headers of a request to the end of its answer.',
    labelNames: ['route', 'method'],
    buckets: DURATION_BUCKETS_S,
    registers,
  });
  const attempts = new Counter({
    name: 'fenced_gateway_lock_attempts_total',
    help: 'Attempts to acquire a lease.',
    labelNames: ['outcome'],
    registers,
  });
  const stale = new Counter({
    name: 'fenced_gateway_stale_writes_total',
    help: 'Writes that were refused, as their token was out of date.',
    labelNames: ['store'],
    registers,
  });
  const unknown = new Counter({
    name: 'fenced_gateway_unknown_outcomes_total',
    help: 'Writes of which the gateway cannot tell whether they were applied.',
    labelNames: ['store'],
    registers,
  });
  const limits: (() => readonly RoomUse[])[] = [];
  watchLimits(() => limits.flatMap((uses) => uses()), registers);
  return {
    observe: ({ route, method, status, durationMs, outcome }) => {
      const known = METHODS.includes(method) ? method : 'other';
      requests.inc({ route, method: known, status: String(status), outcome });
      durations.observe({ route, method: known }, durationMs / 1_000);
    },
    lockAttempt: (outcome) => attempts.inc({ outcome }),
    stale: (store) => stale.inc({ store }),
    unknown: (store) => unknown.inc({ store }),
    watchLimits: (uses) => void limits.push(uses),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

function watchLimits(uses: () => readonly RoomUse[], registers: Registry[]): void {
  const gauge = (name: string, help: string, value: (use: RoomUse) => number): Gauge =>
    new Gauge({
      ...{ name, help, registers },
      labelNames: ['limit'],
      collect() {
        for (const use of uses()) this.set({ limit: use.name }, value(use));
      },
    });
  gauge('fenced_gateway_limit', 'How much there may be at once.', ({ limit }) => limit);
  gauge('fenced_gateway_in_use', 'How much of a limit is in use.', ({ inUse }) => inUse);
}

/** Gauges of what is asked at each scrape. */
function watch({ nodes, pool }: MetricsSources, registers: Registry[]): void {
  if (nodes !== undefined)
    new Gauge({
      name: 'fenced_gateway_lock_node_admitted',
      help: 'Whether a node of the lock answers and its vote counts: 1 or 0.',
      labelNames: ['node'],
      registers,
      async collect() {
        // What cannot be asked is told by its absence; the other metrics are needed most now.
        const states = await nodes().catch(() => []);
        this.reset();
        for (const { name, admitted } of states) this.set({ node: name }, admitted ? 1 : 0);
      },
    });
  if (pool !== undefined)
    new Gauge({
      name: 'fenced_gateway_postgres_connections',
      help: 'Connections to Postgres: busy, idle, and how many requests wait for one.',
      labelNames: ['state'],
      registers,
      collect() {
        this.set({ state: 'busy' }, pool.totalCount - pool.idleCount);
        this.set({ state: 'idle' }, pool.idleCount);
        this.set({ state: 'waiting' }, pool.waitingCount);
      },
    });
}
