import { type Explanation, OnlyServer } from '../lease/one-server.js';
import { afterReading, type Runtime } from '../runtime/runtime.js';
import { CODE, ConnectionLostError, isRefusal } from './protocol/errors.js';
import { type Acl, create, type Operation, PERSISTENT } from './protocol/operations.js';
import type { Session } from './protocol/session.js';

/** Runs calls, and repeats their requests on other servers until the time of a call is over. */
export class Ensemble {
  readonly session: Session;
  readonly acl: Acl;
  readonly server: OnlyServer;
  isClosing = false;
  readonly #runtime: Runtime;

  constructor(session: Session, acl: Acl, runtime: Runtime) {
    this.session = session;
    this.acl = acl;
    this.#runtime = runtime;
    this.server = new OnlyServer('zookeeper', explain, runtime);
  }

  /**
   * Runs `work` again after each lost connection, so `work` must find out what an earlier run has
   * done. The first run takes half of the time at most. So if its server is silent, there is time
   * for another server.
   *
   * @throws {ZooKeeperError} a server refused
   * @throws {ConnectionLostError} no answer in time: the last request may have been carried out
   */
  insist<Result>(limitMs: number, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    return this.server.track(this.#insist(limitMs, work));
  }

  /** Ends the session when all calls that were begun have ended. */
  async close(): Promise<void> {
    this.isClosing = true;
    await this.server.close();
    await this.session.close();
  }

  async #insist<Result>(
    limitMs: number,
    work: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const endMs = this.#runtime.nowMs() + limitMs;
    for (let share = 2; ; share = 1) {
      const controller = new AbortController();
      const leftMs = endMs - this.#runtime.nowMs();
      const late = new ConnectionLostError(`no answer within ${Math.ceil(limitMs)} ms`);
      const cancel = afterReading(this.#runtime)(Math.max(1, leftMs / share), () =>
        controller.abort(late),
      );
      try {
        return await work(controller.signal);
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error;
        if (this.#runtime.nowMs() < endMs && !this.session.isClosed) continue;
        const cause = this.session.lastError ?? error.cause;
        throw new ConnectionLostError(late.message, { cause });
      } finally {
        cancel();
      }
    }
  }

  /** The reply, or null if the server refused with one of the codes. */
  async unless<Reply>(
    codes: readonly number[],
    operation: Operation<Reply>,
    signal: AbortSignal,
    onWatch?: () => void,
  ): Promise<Reply | null> {
    try {
      return await this.session.request(operation, signal, onWatch);
    } catch (error) {
      if (isRefusal(error, ...codes)) return null;
      throw error;
    }
  }

  /** Creates a node and those above it, unless they exist. */
  async ensure(path: string, signal: AbortSignal, mode: number = PERSISTENT): Promise<void> {
    try {
      await this.session.request(create(path, '', mode, this.acl), signal);
    } catch (error) {
      if (isRefusal(error, CODE.nodeExists)) return;
      if (!isRefusal(error, CODE.noNode)) throw error;
      await this.ensure(path.slice(0, path.lastIndexOf('/')), signal);
      await this.ensure(path, signal, mode);
    }
  }
}

function explain(error: Error): Explanation {
  return isRefusal(error, CODE.noAuth)
    ? {
        reason: 'not-installed',
        hint: 'the ensemble refuses access to the nodes of this lock: see root and auth',
      }
    : { reason: 'no-quorum', hint: 'ZooKeeper did not grant the lock' };
}
