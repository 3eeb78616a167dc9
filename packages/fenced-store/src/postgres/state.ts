import type { EventEmitter } from 'node:events';
import { StatementSender } from './batch.js';
import type { PostgresClient } from './client.js';
import { StatementNames } from './statement-names.js';

/** PostgreSQL's routine that waits for synchronous standbys. StatementNames of routines are not translated, as messages are. */
const WAIT_FOR_STANDBY = 'SyncRepWaitForLSN';

/** What was learnt of one connection, for as long as there is one. All stores that are lent it share this. */
export class ConnectionState {
  readonly sender: StatementSender;
  readonly names: StatementNames = new StatementNames();
  /** Whether a transaction has to begin with a BEGIN that says of what kind it is, since the session's defaults are others. */
  needsBegin = false;
  /**
   * Whether the server gave up a wait for a synchronous standby. One that is cancelled, or lasts longer than
   * `statement_timeout`, is answered all the same as committed, and only a warning says that a failover may lose it.
   */
  lacksStandby = false;

  constructor(client: PostgresClient) {
    this.sender = new StatementSender(client);
    (client as unknown as EventEmitter).on('notice', ({ routine }: { routine?: string }) => {
      if (routine === WAIT_FOR_STANDBY) this.lacksStandby = true;
    });
  }
}

const states = new WeakMap<PostgresClient, ConnectionState>();

export function stateOf(client: PostgresClient): ConnectionState {
  const before = states.get(client);
  if (before) return before;
  const state = new ConnectionState(client);
  states.set(client, state);
  return state;
}
