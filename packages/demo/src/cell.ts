import { randomUUID } from 'node:crypto';
import { startLocalRedis, TcpProxy } from '@fenced/testbed';
import { type CheckResult, checkHistory } from './checker.js';
import { ConditionDroppingProxy } from './condition-dropping-proxy.js';
import { Controls } from './controls.js';
import { connect } from './documents/s3.js';
import { Gateways } from './gateways.js';
import type { Event, History } from './history.js';
import type { LockAddress, LockKind, LockServers, Protection, StoreKind } from './job.js';
import { LockNodes } from './lock-nodes.js';
import { NODE_COUNT, type Store, through } from './services.js';
import { missingStep, type Variant } from './stories/story.js';

/** A cell of the table: the outcome of one variant of a story on one store. */
export interface Cell extends CheckResult {
  readonly story: number;
  readonly title: string;
  readonly store: StoreKind;
  readonly lock: LockKind;
  readonly protection: Protection;
  readonly pinned: CheckResult['verdict'];
  /** Tokens of the leases, in the order in which they were acquired. */
  readonly tokens: readonly string[];
  readonly history: readonly Event[];
}

/** In Kleppmann's article, the first client holds token 33. */
const FIRST_TOKEN = 33;
const RESOURCE = 'document';

/**
 * A run to perform: the set-up of one variant, with the script of its story or with another script.
 */
export interface RunPlan {
  readonly variant: Pick<Variant, 'story' | 'lock' | 'protection'>;
  readonly store: Store;
  /** The shared lock servers. A story that breaks lock servers starts its own. */
  readonly servers: LockServers;
  readonly play: (controls: Controls) => Promise<void>;
  /** Called before the first client starts. The result is disposed at the end. */
  readonly onStart?: (history: History, nodes: LockNodes) => AsyncDisposable | undefined;
}

/**
 * Plays one variant of a story on one store, and checks its history.
 *
 * @param servers the shared lock servers; a story that breaks lock servers starts its own
 * @param onEvent called with each event when it happens
 * @throws {TestbedError} `unavailable` if the story breaks nodes, and this machine cannot do that
 */
export async function playCell(
  variant: Variant,
  store: Store,
  servers: LockServers,
  onEvent?: (event: Event) => void,
): Promise<Cell> {
  const { story, lock, protection, pinned } = variant;
  const history = await perform({
    variant,
    store,
    servers,
    play: (controls) => story.play(controls),
    onStart: (history) => {
      if (onEvent) history.onEvent(onEvent);
      return undefined;
    },
  });
  return {
    story: story.number,
    title: story.title,
    store: store.kind,
    lock,
    protection,
    pinned,
    ...checkHistory(history, missingStep(story, history)),
    tokens: history.flatMap(({ operation, token }) =>
      operation === 'acquire' && token !== undefined ? [token] : [],
    ),
    history,
  };
}

/**
 * Starts everything that a story needs, runs the script, and returns the history with the final
 * state.
 *
 * @throws {TestbedError} `unavailable` if the story breaks nodes, and this machine cannot do that
 */
export async function perform({
  variant: { story, lock: kind, protection },
  store,
  servers,
  play,
  onStart,
}: RunPlan): Promise<readonly Event[]> {
  const { number, breaks, replicated, ignoresConditions, behindGateways, underFencedRun } = story;
  await using parts = new AsyncDisposableStack();
  // One more node, to which a story can fail over.
  const own = breaks
    ? parts.use(await startLocalRedis(NODE_COUNT + 1, { hasMovableClock: breaks === 'clocks' }))
    : null;
  const name = `story-${number}-${protection}`;
  const lock = {
    kind,
    ...addressOf(own?.nodes.slice(0, NODE_COUNT) ?? servers),
    keyPrefix: `{demo:${name}:${randomUUID()}}:`,
    firstToken: own ? null : FIRST_TOKEN,
  };
  const lockNodes = parts.use(new LockNodes(lock, RESOURCE, own?.nodes ?? []));
  if (replicated) await lockNodes.giveReplica(replicated);
  // An earlier lease makes 33 the next token: neither a gateway nor `fenced run` has a setting for
  // it.
  if (own || behindGateways || underFencedRun) await lockNodes.useBefore(RESOURCE, FIRST_TOKEN);
  const created = await store.create(name);
  const s3Proxy =
    ignoresConditions && created.kind === 's3'
      ? parts.use(await ConditionDroppingProxy.start(connect(created)))
      : null;
  const { host, port } = s3Proxy ?? store;
  const proxy = parts.use(await TcpProxy.start({ host, port }));
  const storage = through(created, host, port);
  const gateways = behindGateways ? parts.use(await Gateways.start(lock, storage, RESOURCE)) : null;
  const controls = parts.use(
    new Controls({
      job: { resource: RESOURCE, protection, lock, storage },
      proxy,
      nodes: lockNodes,
      leaseLasts: story.leaseLasts ?? false,
      gateways,
      underFencedRun: underFencedRun ?? false,
    }),
  );
  parts.use(onStart?.(controls.history, lockNodes));
  await play(controls);
  await controls.readFinalState();
  return controls.history.events;
}

function addressOf(servers: LockServers): Pick<LockAddress, 'nodes' | 'service'> {
  if ('kind' in servers) return { nodes: [], service: servers };
  return { nodes: servers.map(({ name, url }) => ({ name, url })) };
}
