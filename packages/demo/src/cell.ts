import { randomUUID } from 'node:crypto';
import { TcpProxy } from '@fenced/testbed';
import { Director } from './director.js';
import { connect } from './documents/s3.js';
import { ForgetfulGateway } from './forgetful.js';
import type { Event } from './history.js';
import type { LockAddress, Protection, StoreKind } from './job.js';
import type { Scenario } from './scenarios/scenario.js';
import { type Store, through } from './services.js';
import { type Judgement, judge } from './verdict.js';

/** One scenario on one store under one protection, played and judged. */
export interface Cell extends Judgement {
  readonly scenario: number;
  readonly store: StoreKind;
  readonly protection: Protection;
  readonly pinned: Judgement['verdict'];
  /** Of the leases, in the order in which they were acquired. */
  readonly tokens: readonly string[];
  readonly history: readonly Event[];
}

/** The article's first client holds token 33. */
const FIRST_TOKEN = 33;
const RESOURCE = 'document';

export async function playCell(
  scenario: Scenario,
  protection: Protection,
  store: Store,
  nodes: LockAddress['nodes'],
): Promise<Cell> {
  const pinned = scenario.pinned[protection];
  if (pinned === undefined) throw new Error(`scenario ${scenario.number} has no ${protection}`);
  const name = `scenario-${scenario.number}-${protection}`;
  const lock = { nodes, keyPrefix: `{demo:${name}:${randomUUID()}}:`, firstToken: FIRST_TOKEN };
  const made = await store.create(name);
  await using gateway =
    scenario.ignoresConditions && made.kind === 's3'
      ? await ForgetfulGateway.start(connect(made))
      : null;
  const { host, port } = gateway ?? store;
  const document = through(made, host, port);
  await using proxy = await TcpProxy.start({ host, port });
  const job = { resource: RESOURCE, protection, lock, storage: document };
  await using director = new Director(job, proxy);

  await scenario.play(director);
  await director.readFinalState();

  const history = director.history.events;
  return {
    scenario: scenario.number,
    store: store.kind,
    protection,
    pinned,
    ...judge(history, scenario.missing(history)),
    tokens: history.flatMap(({ operation, token }) =>
      operation === 'acquire' && token !== undefined ? [token] : [],
    ),
    history,
  };
}
