import type { Ensemble } from './ensemble.js';
import type { Paths } from './paths.js';
import { CODE, isRefusal } from './protocol/errors.js';
import {
  CONTAINER,
  create,
  EPHEMERAL_SEQUENTIAL,
  getChildren,
  type Operation,
  PERSISTENT,
  remove,
  sync,
  transaction,
  watchExists,
} from './protocol/operations.js';

/** The wait queues of several resources. Each is a parent node, with a child for each waiter. */
export class WaitQueue {
  readonly ensemble: Ensemble;
  readonly parents: readonly string[];

  constructor(resources: readonly string[], ensemble: Ensemble, paths: Paths) {
    this.ensemble = ensemble;
    this.parents = resources.map((name) => paths.queue(name));
  }

  /**
   * Operations that are refused while a parent exists, because they create it. As parts of an
   * acquisition's transaction, they make it fail while clients wait.
   */
  get barrier(): Operation<unknown>[] {
    const { acl } = this.ensemble;
    return this.parents.flatMap((path) => [create(path, '', PERSISTENT, acl), remove(path)]);
  }

  /** True if somebody waits. Deletes the parents of queues that are empty. */
  async isWaitedFor(signal: AbortSignal): Promise<boolean> {
    const lists = await this.lists(signal);
    if (lists.some((list) => list.length > 0)) return true;
    await this.removeEmpty(signal);
    return false;
  }

  /** Deletes the parents without waiters. */
  async removeEmpty(signal: AbortSignal): Promise<void> {
    const codes = [CODE.noNode, CODE.notEmpty];
    await Promise.all(
      this.parents.map((path) => this.ensemble.unless(codes, remove(path), signal)),
    );
  }

  /**
   * @param id a random name, with which the names of the waiter's nodes begin. By it, the waiter
   *   finds them even if the reply to their creation was lost.
   */
  position(id: string): Position {
    return new Position(id, this);
  }

  /** The names of all waiters' nodes, in their order. */
  lists(signal: AbortSignal): Promise<string[][]> {
    return Promise.all(
      this.parents.map(async (path) => {
        const names = await this.ensemble.unless([CODE.noNode], getChildren(path), signal);
        return (names ?? []).toSorted(byNumber);
      }),
    );
  }
}

/**
 * A waiter's position in the queues of its resources. Its nodes are created in one transaction, so
 * of two waiters one is before the other in all queues. They are ephemeral: they end with the
 * session, as after a crash.
 */
export class Position {
  readonly #id: string;
  readonly #queue: WaitQueue;
  /** Invariant: a position that is given up creates no node, also if an attempt still runs. */
  isGivenUp = false;
  /** The session in which the nodes were last created, or may have been. */
  #session: bigint | null = null;
  /** The operations that delete its nodes. The server refuses them if the nodes are gone. */
  removals: Operation<void>[] = [];

  constructor(id: string, queue: WaitQueue) {
    this.#id = id;
    this.#queue = queue;
  }

  /**
   * Enqueues, if that has not happened in the present session.
   *
   * @param onWatch called once when the waiter before this one has left, or may have
   * @returns true if it is the head of all queues
   */
  async isHead(signal: AbortSignal, onWatch: () => void): Promise<boolean> {
    for (;;) {
      const lists = await this.#queue.lists(signal);
      if (this.isGivenUp) return false;
      const own = lists.map((list) => list.filter((name) => name.startsWith(this.#id)));
      const { id } = this.#queue.ensemble.session;
      if (this.#session !== id || own.some((names) => names.length !== 1)) {
        await this.#enqueue(this.#paths(own), id, signal);
        continue;
      }
      this.removals = this.#paths(own).map((path) => remove(path));
      const before = lists.map((list, at) => list[list.indexOf(own[at]?.[0] ?? '') - 1]);
      const watched = before.map(async (name, at) => {
        if (name === undefined) return 'nobody';
        const operation = watchExists(`${this.#queue.parents[at]}/${name}`);
        return this.#queue.ensemble.unless([CODE.noNode], operation, signal, onWatch);
      });
      const found = await Promise.all(watched);
      if (found.every((one) => one === 'nobody')) return true;
      // Null: the waiter before has left since the list was read.
      if (!found.includes(null)) return false;
    }
  }

  /**
   * Deletes the nodes. Needed also if it is not known whether they were created.
   *
   * @returns true if nobody else waits
   */
  async leave(signal: AbortSignal): Promise<boolean> {
    const [parent] = this.#queue.parents;
    if (this.#session === null || parent === undefined) return false;
    // The nodes may have been created through another server, and be unknown to this one yet.
    const synced = this.#queue.ensemble.session.request(sync(parent), signal);
    const [lists] = await Promise.all([this.#queue.lists(signal), synced]);
    const own = lists.map((list) => list.filter((name) => name.startsWith(this.#id)));
    await this.#remove(this.#paths(own), signal);
    return lists.flat().length === own.flat().length;
  }

  /** @param leftovers its nodes of an earlier session, or of a request whose reply was lost */
  async #enqueue(leftovers: string[], session: bigint, signal: AbortSignal): Promise<void> {
    await this.#remove(leftovers, signal);
    if (this.isGivenUp) return;
    this.#session = session;
    const { acl } = this.#queue.ensemble;
    const operations = this.#queue.parents.map((path) =>
      create(`${path}/${this.#id}_`, '', EPHEMERAL_SEQUENTIAL, acl),
    );
    try {
      await this.#queue.ensemble.session.request(transaction(operations), signal);
    } catch (error) {
      if (!isRefusal(error, CODE.noNode)) throw error;
      for (const path of this.#queue.parents)
        await this.#queue.ensemble.ensure(path, signal, CONTAINER);
    }
  }

  async #remove(paths: readonly string[], signal: AbortSignal): Promise<void> {
    for (const path of paths)
      await this.#queue.ensemble.unless([CODE.noNode], remove(path), signal);
  }

  #paths(own: readonly string[][]): string[] {
    return own.flatMap((names, at) => names.map((name) => `${this.#queue.parents[at]}/${name}`));
  }
}

/** By the numbers at the ends of the names: `0000000007`. After 2^31-1, they go on at -2^31. */
function byNumber(one: string, other: string): number {
  return (numberOf(one) - numberOf(other)) | 0;
}

function numberOf(name: string): number {
  return Number(/-?\d{10}$/.exec(name)?.[0] ?? 0);
}
