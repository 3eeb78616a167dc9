import { randomUUID } from 'node:crypto';
import { startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Director } from './director.js';
import { connect } from './documents/s3.js';
import { ForgetfulGateway } from './forgetful.js';
import { Gateways } from './gateways.js';
import type { Event } from './history.js';
import type { LockAddress, LockKind, Protection, StoreKind } from './job.js';
import { LockNodes } from './lock-nodes.js';
import type { Play } from './scenarios/scenario.js';
import { NODE_COUNT, type Store, through } from './services.js';
import { type Judgement, judge } from './verdict.js';

/** One scenario on one store under one lock and one protection, played and judged. */
export interface Cell extends Judgement {
  readonly scenario: number;
  readonly title: string;
  readonly store: StoreKind;
  readonly lock: LockKind;
  readonly protection: Protection;
  readonly pinned: Judgement['verdict'];
  /** Of the leases, in the order in which they were acquired. */
  readonly tokens: readonly string[];
  readonly history: readonly Event[];
}

/** The article's first client holds token 33. */
const FIRST_TOKEN = 33;
const RESOURCE = 'document';

/**
 * @param nodes of the lock, for all stories that break none
 * @throws {TestbedError} `unavailable`, where the story breaks nodes and this machine has not what that takes
 */
export async function playCell(
  { scenario, lock: kind, protection, pinned }: Play,
  store: Store,
  nodes: LockAddress['nodes'],
): Promise<Cell> {
  const { number, title, breaks, replicated, ignoresConditions, behindGateways } = scenario;
  await using parts = new AsyncDisposableStack();
  // One more, to fail over to.
  const own = breaks
    ? parts.use(await startLocalRedis(NODE_COUNT + 1, { hasMovableClock: breaks === 'clocks' }))
    : null;
  const name = `scenario-${number}-${protection}`;
  const lock = {
    kind,
    nodes: own?.nodes.slice(0, NODE_COUNT).map(({ name, url }) => ({ name, url })) ?? nodes,
    keyPrefix: `{demo:${name}:${randomUUID()}}:`,
    firstToken: own ? null : FIRST_TOKEN,
  };
  const lockNodes = parts.use(new LockNodes(lock, RESOURCE, own?.nodes ?? []));
  if (replicated) await lockNodes.giveReplica(replicated);
  // A gateway cannot be told with which token to begin.
  if (own || behindGateways) await lockNodes.useBefore(RESOURCE, FIRST_TOKEN);
  const made = await store.create(name);
  const gateway =
    ignoresConditions && made.kind === 's3'
      ? parts.use(await ForgetfulGateway.start(connect(made)))
      : null;
  const { host, port } = gateway ?? store;
  const proxy = parts.use(await TcpProxy.start({ host, port }));
  const document = through(made, host, port);
  const job = { resource: RESOURCE, protection, lock, storage: document };
  const gateways = behindGateways
    ? parts.use(await Gateways.start(lock, document, RESOURCE))
    : null;
  const { leaseLasts = false } = scenario;
  const director = parts.use(new Director(job, proxy, lockNodes, leaseLasts, gateways));

  await scenario.play(director);
  await director.readFinalState();

  const history = director.history.events;
  return {
    scenario: number,
    title,
    store: store.kind,
    lock: kind,
    protection,
    pinned,
    ...judge(history, scenario.missing(history)),
    tokens: history.flatMap(({ operation, token }) =>
      operation === 'acquire' && token !== undefined ? [token] : [],
    ),
    history,
  };
}
