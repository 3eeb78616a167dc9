import { StoreSetupError, StoreUnavailableError } from '../core/errors.js';
import {
  isServerError,
  type LentClient,
  type PostgresClient,
  type PostgresPool,
  type ServerError,
} from './client.js';
import { connectPostgresJs, isPostgresJs, type PostgresJs } from './postgres-js.js';
import type { Runtime } from './runtime.js';
import { Session } from './session.js';
import { type WaitLimit, within } from './within.js';

/** Lends connections of the caller's pool, or the caller's single client to one user at a time. */
export class Connections {
  /** Default limit for a wait. */
  readonly holdMs: number;
  readonly runtime: Runtime;
  readonly #borrow: (limitMs: number) => Promise<Session>;

  constructor(pool: PostgresPool | PostgresClient | PostgresJs, holdMs: number, runtime: Runtime) {
    this.holdMs = holdMs;
    this.runtime = runtime;
    // In pg, both pools and clients have `connect` and `query`. Only clients have `escapeLiteral`.
    this.#borrow = (limitMs) =>
      'escapeLiteral' in pool
        ? borrowClient(pool, runtime, limitMs)
        : borrowFrom(lender(pool), runtime, limitMs);
  }

  /**
   * Runs `use` on a connection that is ready for a transaction. If the signal aborts before `use`
   * has ended, the running statement is cancelled.
   *
   * @throws {StoreUnavailableError} no connection within the limit
   * @throws {StoreSetupError} address, credentials or the connection's state are wrong
   */
  async with<Result>(
    waitLimit: WaitLimit,
    use: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const session = await this.#checkOut(waitLimit);
    const { signal } = waitLimit;
    const interrupt = (): void => void session.interrupt(signal?.reason);
    signal?.addEventListener('abort', interrupt, { once: true });
    try {
      signal?.throwIfAborted();
      session.requireIdle();
      return await use(session);
    } finally {
      signal?.removeEventListener('abort', interrupt);
      session.close();
    }
  }

  /**
   * Sends a question: any statement outside a fenced transaction. No signal cancels it.
   *
   * @param meaningOf makes the error for the server's refusal
   * @param lost makes the error for a lost answer
   * @param undo the statement that ends a transaction which the question may have left open
   */
  ask<Answer>(
    question: (session: Session) => Promise<Answer>,
    meaningOf: (error: ServerError) => Error,
    lost: (cause: unknown) => Error,
    undo?: string,
  ): Promise<Answer> {
    return this.with({ limitMs: this.holdMs, signal: undefined }, async (session) => {
      try {
        return await question(session);
      } catch (error) {
        const isAlive = await session.rollBack(undo);
        throw isAlive && isServerError(error) ? meaningOf(error) : lost(error);
      }
    });
  }

  #checkOut(waitLimit: WaitLimit): Promise<Session> {
    waitLimit.signal?.throwIfAborted();
    const borrowing = this.#borrow(waitLimit.limitMs);
    const advice = 'is it a PostgreSQL server, and are there enough connections?';
    return within(borrowing, waitLimit, this.runtime, advice).catch((error) => {
      // A connection that comes after the wait was given up goes back at once.
      void borrowing.then(
        (session) => session.close(),
        () => undefined,
      );
      throw error;
    });
  }
}

/** pg's own pool also takes a callback, which it calls before any promise is resolved. */
type Connect = (
  lend: (error: Error | undefined, client?: LentClient) => void,
) => Promise<LentClient> | undefined;

function lender(pool: PostgresPool | PostgresJs): Connect {
  if (isPostgresJs(pool)) return () => connectPostgresJs(pool);
  return (lend) => (pool as { readonly connect: Connect }).connect(lend);
}

/**
 * Borrows by a callback. A server that is shutting down may accept a connection and end it in one
 * packet. That error comes before a promise resolves, when the connection has no listener yet, and
 * would end the process.
 */
function borrowFrom(connect: Connect, runtime: Runtime, limitMs: number): Promise<Session> {
  const { promise, resolve, reject } = Promise.withResolvers<Session>();
  const lend = (client: LentClient): void =>
    resolve(
      new Session(client, (lostBy) => client.release(lostBy), { runtime, limitMs, isPools: true }),
    );
  const fail = (error: unknown): void => reject(connectFailure(error));
  try {
    // A pool that knows no callbacks returns a promise.
    connect((error, client) => (client ? lend(client) : fail(error)))?.then(lend, fail);
  } catch (error) {
    fail(error);
  }
  return promise;
}

/** The end of the last use of each client. It is global, because stores may share a client. */
const lastUses = new WeakMap<PostgresClient, Promise<unknown>>();

async function borrowClient(
  client: PostgresClient,
  runtime: Runtime,
  limitMs: number,
): Promise<Session> {
  const before = lastUses.get(client);
  const { promise, resolve } = Promise.withResolvers<unknown>();
  lastUses.set(client, promise);
  await before;
  const giveBack = (_: Error | undefined, pending?: Promise<unknown>): void => {
    // A statement that was given up may still run, and leave a transaction open. The next user
    // waits for its end, and for the ROLLBACK.
    resolve(pending?.catch(() => undefined).then(() => client.query('ROLLBACK').catch(() => {})));
  };
  return new Session(client, giveBack, { runtime, limitMs, isPools: false });
}

/** The error for a connection that could not be made. Nothing was sent. */
function connectFailure(error: unknown): Error {
  const { code = '', message = String(error) } = error as { code?: string; message?: string };
  const report = `no connection to PostgreSQL: ${message || code}`;
  const isSetup = isServerError(error)
    ? // Role or password refused, database unknown, or no right to connect to it.
      /^(28|3D|42501)/.test(code)
    : // An error of pg itself has no code. If it reports no lost connection and no time limit, then
      // TLS or the password is wrong.
      code === 'ENOTFOUND' || (code === '' && !/terminated|timeout/i.test(message));
  return isSetup
    ? new StoreSetupError(`${report}; check address, database, role, password and TLS`, {
        cause: error,
      })
    : new StoreUnavailableError(report, { cause: error });
}
