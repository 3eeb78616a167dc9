import { StoreSetupError, StoreUnavailableError } from '../core/errors.js';
import {
  isServerError,
  type PostgresClient,
  type PostgresPool,
  type PostgresPoolClient,
} from './client.js';

/** Gives a connection back to its owner: with an error where it must not be used again, and with an answer that is still outstanding. */
type GiveBack = (error?: Error, overdue?: Promise<unknown>) => void;

/**
 * A connection, and the way back to its owner. We listen to its `error` events, which end the process where nobody does.
 * A lost one keeps its listener: its socket may have more to complain about.
 */
export class BorrowedConnection {
  readonly client: PostgresClient;
  /** Why the connection is of no more use, as far as that is known. */
  lostBy: Error | undefined;
  readonly #giveBack: GiveBack;
  readonly #onError = (error: Error): void => {
    this.lostBy ??= error;
  };

  constructor(client: PostgresClient, giveBack: GiveBack) {
    this.client = client;
    this.#giveBack = giveBack;
    client.on('error', this.#onError);
  }

  giveBack(overdue?: Promise<unknown>): void {
    if (this.lostBy === undefined) this.client.removeListener('error', this.#onError);
    this.#giveBack(this.lostBy, overdue);
  }
}

/** What pg's own pool can do beside giving a promise: it lends before anything else can happen to the connection. */
interface LendingPool {
  connect(
    lend: (error: Error | undefined, client?: PostgresPoolClient) => void,
  ): Promise<PostgresPoolClient> | undefined;
}

/**
 * The pool takes its listener away when it lends a connection. A server that is going down greets and takes leave in one
 * packet, so that the error would come before any promise is kept, and end the process: hence the listener in between.
 */
export function fromPool(pool: PostgresPool): () => Promise<BorrowedConnection> {
  return () => {
    const { promise, resolve, reject } = Promise.withResolvers<BorrowedConnection>();
    const lend = (client: PostgresPoolClient): void =>
      resolve(new BorrowedConnection(client, (error) => client.release(error)));
    const fail = (error: unknown): void => reject(connectFailure(error));
    try {
      // Pools that know nothing of callbacks give a promise all the same.
      (pool as LendingPool)
        .connect((error, client) => (client ? lend(client) : fail(error)))
        ?.then(lend, fail);
    } catch (error) {
      fail(error);
    }
    return promise;
  };
}

/** When the last of those who asked for a client will be done with it; shared by all stores, since the client is. */
const lastTurns = new WeakMap<PostgresClient, Promise<void>>();

export function serialized(client: PostgresClient): () => Promise<BorrowedConnection> {
  return async () => {
    const before = lastTurns.get(client);
    let endTurn = (): void => undefined;
    const turn = new Promise<void>((resolve) => {
      endTurn = resolve;
    });
    lastTurns.set(client, turn);
    await before;
    return new BorrowedConnection(client, (_, overdue) => {
      // What was given up may still be carried out, and leave a transaction open: nobody's turn comes before that is over.
      const over = overdue?.catch(() => undefined).then(() => client.query('ROLLBACK'));
      Promise.resolve(over).then(endTurn, endTurn);
    });
  };
}

/** Why no connection could be had. Nothing was sent. */
function connectFailure(error: unknown): Error {
  const { code = '', message = String(error) } = error as { code?: string; message?: string };
  const report = `no connection to PostgreSQL: ${message || code}`;
  const isSetup = isServerError(error)
    ? // Role or password refused, database unknown, or no right to connect to it.
      /^(28|3D|42501)/.test(code)
    : // pg has no codes of its own. What is neither the network nor a limit is TLS or a password that does not fit.
      code === 'ENOTFOUND' || (code === '' && !/terminated|timeout/i.test(message));
  return isSetup
    ? new StoreSetupError(`${report}; check address, database, role, password and TLS`, {
        cause: error,
      })
    : new StoreUnavailableError(report, { cause: error });
}
