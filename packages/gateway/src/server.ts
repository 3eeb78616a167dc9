import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { InvalidArgumentError } from '@fenced/store';
import { checkWholeNumber } from '@fenced/store/internal';
import type { Express } from 'express';
import { ConcurrencyLimit, type LimitUse } from './concurrency-limit.js';
import { limitConnections, RequestQueues } from './connections.js';
import type { Drain } from './drain.js';
import type { AllLimits } from './limits.js';
import { answerMalformed, refuseExpectation } from './malformed.js';
import { Problem } from './problem.js';
import { type Runtime, systemRuntime } from './runtime.js';

export interface ServerOptions {
  /** @default '127.0.0.1' */
  readonly host?: string;
  /** 0 takes a free port. @default 8080 */
  readonly port?: number;
  /** Milliseconds for which a connection may stay open without a request. @default 65_000 */
  readonly keepAliveMs?: number;
  /**
   * Milliseconds without any byte after which a connection is closed.
   *
   * @default 60 s more than any wait that `limits` allow
   */
  readonly idleMs?: number;
  /** Called for each connection that was closed at once, because there were too many. */
  readonly onRefused?: (address: string, reason: Problem) => void;
}

/** The settings of a gateway that hold for its server, too. */
interface Shared {
  readonly limits: AllLimits;
  readonly drain: Drain;
  /** Shows the number of connections. */
  readonly metrics: { watchLimits?(uses: () => readonly LimitUse[]): void } | undefined;
}

/** The settings of each gateway, by its app. */
export const sharedSettings: WeakMap<Express, Shared> = new WeakMap();

export interface GatewayServer {
  readonly url: string;
  /**
   * Shuts down. Readiness fails at once. After `limits.drainDelayMs`, no connection is accepted,
   * idle connections close, and running requests have `limits.graceMs` to end. Then the rest is cut
   * off.
   *
   * @returns whether all requests came to their end
   */
  drain(): Promise<boolean>;
}

/** Time for a whole request to arrive, uploads too. */
const REQUEST_MS = 3_600_000;
const SLACK_MS = 60_000;
/** Time to send the answers to requests that the end of the grace period has cut off. */
const LAST_ANSWERS_MS = 1_000;
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * Listens, with every limit that Node has against slow and hostile clients.
 *
 * @param app made by `createGateway`, whose limits hold for the server, too
 * @throws {InvalidArgumentError} if `app` is no gateway, or an option is out of range
 * @throws if the address is taken
 */
export async function serveGateway(
  app: Express,
  options: ServerOptions = {},
  runtime: Runtime = systemRuntime,
): Promise<GatewayServer> {
  const { host = '127.0.0.1', port = 8_080, keepAliveMs = 65_000, onRefused } = options;
  const shared = sharedSettings.get(app);
  if (!shared) throw new InvalidArgumentError('app must be a gateway, made by createGateway');
  const { limits, drain, metrics } = shared;
  const longestWaitMs = Math.max(limits.waitMsMax + limits.storeTimeoutMs, limits.idleTimeoutMs);
  const { idleMs = longestWaitMs + SLACK_MS } = options;
  checkWholeNumber('port', port, 0, 65_535);
  checkWholeNumber('keepAliveMs', keepAliveMs, 1, TIMER_MS_MAX);
  checkWholeNumber('idleMs', idleMs, 1, TIMER_MS_MAX);
  const server = createServer({
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: REQUEST_MS,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: Math.min(1_000, limits.headersTimeoutMs),
    maxHeaderSize: limits.headerBytesMax,
    // The gateway itself reports a missing header, in its own format.
    requireHostHeader: false,
    insecureHTTPParser: false,
    noDelay: true,
  });
  // No limit on the number of headers. Node would drop those beyond it, and so could hide a second
  // header that contradicts the first.
  server.maxHeadersCount = 0;
  server.setTimeout(idleMs);
  const { connectionsMax, connectionsPerAddressMax = null } = limits;
  const connections = new ConcurrencyLimit('connections', connectionsMax, connectionsPerAddressMax);
  metrics?.watchLimits?.(() => [connections.use]);
  limitConnections(server, connections, isProxyOf(app), onRefused);
  answerMalformed(server, runtime);
  const queues = new RequestQueues(server, drain.begun.signal);
  server.on('request', queues.inTurn(app));
  // The client waits before it sends its body (`Expect: 100-continue`). The app may refuse the
  // body.
  server.on('checkContinue', queues.inTurn(app));
  server.on('checkExpectation', queues.inTurn(refuseExpectation));
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`,
    drain: async () => {
      drain.begun.abort();
      if (limits.drainDelayMs > 0)
        await new Promise<void>((resolve) => runtime.after(limits.drainDelayMs, resolve));
      drain.closing.abort(new Problem('shutting-down', 'try another gateway', { retryAfterMs: 1 }));
      return closeWithin(limits.graceMs, server, queues, drain.graceOver, runtime);
    },
  };
}

/** The rule by which the gateway trusts `X-Forwarded-For`, as Express has compiled it. */
function isProxyOf(app: Express): (address: string) => boolean {
  const isTrusted = app.get('trust proxy fn') as (address: string, hop: number) => boolean;
  return (address) => isTrusted(address, 0);
}

/** @returns whether all requests ended within the grace */
async function closeWithin(
  graceMs: number,
  server: Server,
  queues: RequestQueues,
  graceOver: AbortController,
  runtime: Runtime,
): Promise<boolean> {
  let isWhole = true;
  let cancel = runtime.after(graceMs, () => {
    isWhole = false;
    graceOver.abort();
    cancel = runtime.after(LAST_ANSWERS_MS, () => server.closeAllConnections());
  });
  const closed = new Promise((resolve) => server.close(resolve));
  queues.closeIdle();
  await closed;
  cancel();
  return isWhole;
}
