import './node-version.js';
import { parseToken } from '@fenced/store';
import { checkObject, checkWholeNumber } from '@fenced/store/internal';
import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import { type Binding, bindLeases } from './bindings.js';
import { ConcurrencyLimit, type LimitUse } from './concurrency-limit.js';
import type { Credentials } from './credentials.js';
import { Drain } from './drain.js';
import type { EndedRequest } from './ended-request.js';
import type { Route } from './exchange.js';
import { FairQueue } from './fair-queue.js';
import { Gate, type Rates } from './gate.js';
import { type Limits, resolveLimits } from './limits.js';
import { openApiOf } from './openapi.js';
import { Problem } from './problem.js';
import { Readiness } from './readiness.js';
import { leaseSetRoutes } from './routes/lease-sets.js';
import { leaseRoutes } from './routes/leases.js';
import { mcpRoute } from './routes/mcp.js';
import { objectRoutes } from './routes/objects.js';
import { documentRoutes, operationRoutes } from './routes/operations.js';
import { ratchetRoutes } from './routes/ratchets.js';
import { recordRoutes } from './routes/records.js';
import { writeRoutes } from './routes/writes.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { sharedSettings } from './server.js';
import type { ConcurrencyLimits, LockService, ObjectStore, RecordStore } from './services.js';
import type { TokenSigner } from './token-signer.js';

export type { ProblemCode } from '@fenced/client/protocol/problem-codes';
export type { Binding } from './bindings.js';
export type { LimitUse } from './concurrency-limit.js';
export { Drain } from './drain.js';
export type { EndedRequest } from './ended-request.js';
export type { Rates } from './gate.js';
export type { Limits } from './limits.js';
export { Problem } from './problem.js';
export * from './rate-limit.js';
export type { Runtime } from './runtime.js';
export { type GatewayServer, type ServerOptions, serveGateway } from './server.js';
export type { GrantedLease, LockService, NodeVote, ObjectStore, RecordStore } from './services.js';
export * from './token-signer.js';

export interface GatewayOptions {
  readonly lock: LockService;
  /**
   * The longest lease that the lock grants. The OpenAPI document then states it, and the gateway
   * refuses a longer one before it asks the lock.
   */
  readonly maxTtlMs?: number;
  /** Without it, there are no routes for objects. */
  readonly objects?: ObjectStore;
  readonly records?: RecordStore;
  /**
   * The number of connections in the pool of `records`. Callers share them fairly: further work of
   * a caller waits before it takes a connection.
   *
   * @default 10, as in `pg.Pool`
   */
  readonly databaseConnectionsMax?: number;
  /**
   * The callers and their rights. Without credentials, every caller may do everything, so the
   * server must listen on loopback only. It then answers requests for loopback hosts only, and no
   * page of another site.
   */
  readonly credentials?: Credentials;
  /**
   * Without a signer, tokens are plain numbers, and a caller with the right to write may present
   * any number.
   */
  readonly signer?: TokenSigner;
  /**
   * Rules for the lease that guards a key. The first match counts. Without a match, the lease has
   * the key's own name. Rules need signed tokens, because a plain number does not show its lease.
   */
  readonly bindings?: readonly Binding[];
  readonly rate?: Rates;
  /** Addresses or networks of proxies whose `X-Forwarded-For` is trusted. */
  readonly trustedProxies?: readonly string[];
  readonly limits?: Limits;
  /**
   * Milliseconds for which a signed token can be presented, from the grant or extension of its
   * lease.
   *
   * @default 86_400_000
   */
  readonly signatureTtlMs?: number;
  /**
   * The app that serves `/livez`, `/readyz` and `/metrics`. `here`: this app, beside all other
   * routes. `only`: this app, without other routes. `elsewhere`: another app.
   *
   * @default 'here'
   */
  readonly operations?: 'here' | 'only' | 'elsewhere';
  /** The source of `/metrics`, read at most once a second. */
  readonly metrics?: GatewayMetrics;
  /**
   * The shutdown of this gateway. Gateways that end together share one.
   *
   * @default a new one, which `GatewayServer.drain` begins
   */
  readonly drain?: Drain;
  /** Called for every request when it has ended, for log and metrics. */
  readonly onRequest?: (ended: EndedRequest) => void;
}

/** The part of `Metrics` that the gateway uses. */
export interface GatewayMetrics {
  readonly contentType: string;
  text(): Promise<string>;
  /**
   * Called by the gateway and by its server, with a function that returns the use of their limits.
   */
  watchLimits?(uses: () => readonly LimitUse[]): void;
}

/** Makes an Express app for leases and token-checked storage. `serveGateway` serves it. */
export function createGateway(options: GatewayOptions, runtime: Runtime = systemRuntime): Express {
  checkObject('options', options);
  checkObject('lock', options.lock);
  const limits = resolveLimits(options.limits);
  const { signer = plainTokens, bindings = [], signatureTtlMs = 86_400_000 } = options;
  const { drain = new Drain(), databaseConnectionsMax = 10 } = options;
  checkWholeNumber('databaseConnectionsMax', databaseConnectionsMax, 1, 1_000);
  // Without credentials, all callers have one name. So one name may use the whole limit.
  const shared = (name: string, limit: number) =>
    new ConcurrencyLimit(name, limit, options.credentials ? null : limit);
  const concurrency: ConcurrencyLimits = {
    requests: shared('requests', limits.requestsMax),
    waits: shared('waits', limits.waitsMax),
    uploads: shared('uploads', limits.uploadsMax),
    database: new FairQueue(shared('database', databaseConnectionsMax)),
  };
  const common = { ...options, limits, concurrency, runtime, drain };
  const services = { ...common, signer, leaseOf: bindLeases(bindings), signatureTtlMs };
  const { objects, records, metrics, operations = 'here' } = options;
  const serviceRoutes = [
    ...leaseRoutes(services),
    ...leaseSetRoutes(services),
    ...(objects ? objectRoutes({ ...services, objects }) : []),
    ...(records ? recordRoutes({ ...services, records }) : []),
    ...ratchetRoutes(services),
    ...writeRoutes(services),
    ...documentRoutes(() => openApiOf(routes)),
  ];
  if (operations !== 'only')
    metrics?.watchLimits?.(() => Object.values(concurrency).map(({ use }) => use));
  const readiness = new Readiness(options, drain.begun.signal, runtime);
  const routes: readonly Route[] = [
    ...(operations === 'only' ? [] : serviceRoutes),
    ...(operations === 'elsewhere' ? [] : operationRoutes(readiness, metrics, runtime)),
  ];
  const served = operations === 'only' ? routes : [...routes, mcpRoute(services, routes)];
  const app = appOf(served, new Gate(options, services), options.trustedProxies ?? []);
  sharedSettings.set(app, { limits, drain, metrics: operations === 'only' ? undefined : metrics });
  return app;
}

/** Tokens as they are: a caller with the right to write may present any number. */
const plainTokens: TokenSigner = {
  sign: (token) => String(token),
  verify: (text) => parseToken(text),
};

function appOf(routes: readonly Route[], gate: Gate, trustedProxies: readonly string[]): Express {
  const app = express();
  for (const name of ['x-powered-by', 'etag', 'query parser']) app.set(name, false);
  for (const name of ['strict routing', 'case sensitive routing']) app.set(name, true);
  app.set('trust proxy', [...trustedProxies]);
  app.use((request, response, next) => gate.begin(request, response, next));
  for (const route of routes)
    app[route.method](route.path, (request: Request, response: Response) =>
      gate.admit(route, request, response),
    );
  // Behind all routes: for other methods, `Allow` lists those of each route that the path matches.
  for (const { path, method } of routes)
    app.route(path).all((_, response, next) => {
      response.append('Allow', method.toUpperCase());
      next();
    });
  app.use((request: Request, response: Response): never => {
    const allowed = response.get('Allow');
    if (allowed === undefined) throw new Problem('no-such-route', 'see /openapi.json');
    throw new Problem('method-not-allowed', `this path is for ${allowed}, not ${request.method}`);
  });
  app.use((error: unknown, request: Request, response: Response, _: NextFunction) =>
    gate.fail(error, request, response),
  );
  return app;
}
