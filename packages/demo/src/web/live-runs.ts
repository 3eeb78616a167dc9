import { setTimeout } from 'node:timers/promises';
import { describeMachine, TestbedError } from '@fenced/testbed';
import { perform } from '../cell.js';
import { checkHistory } from '../checker.js';
import type { History } from '../history.js';
import type { LockAddress } from '../job.js';
import type { LockNodes } from '../lock-nodes.js';
import type { Store } from '../services.js';
import { isPlayedOn, missingStep, type Story, type Variant, variantsOf } from '../stories/story.js';
import type { Action, FeedMessage, OfferedStory } from './feed.js';
import { OwnRun, ownRun } from './own-run.js';
import { FORMAT, type SeenLease, seal } from './recording.js';

/** Period at which the lock nodes are asked for their leases. */
const LOOK_MS = 25;
const TICK_MS = 250;

/** The request does not fit the state of the runs. The message says why. */
export class RefusedError extends Error {}

interface Parts {
  readonly stories: readonly Story[];
  readonly stores: readonly Store[];
  readonly nodes: LockAddress['nodes'];
  /** Names and versions of the servers. */
  readonly programs: Readonly<Record<string, string>>;
}

interface Seen {
  readonly history: History;
  readonly nodes: LockNodes;
  readonly leases: SeenLease[];
}

/** Plays one run at a time with real processes and servers, and reports it to the pages. */
export class LiveRuns {
  readonly #parts: Parts;
  readonly #stories: readonly Story[];
  readonly #listeners = new Set<(message: FeedMessage) => void>();
  /** The messages of the latest run. */
  #messages: FeedMessage[] = [];
  #own: OwnRun | null = null;
  #isRunning = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#stories = [ownRun, ...parts.stories];
  }

  /** Calls the listener with all messages of the latest run, and with those that follow. */
  async listen(listener: (message: FeedMessage) => void): Promise<() => void> {
    const { machine } = await describeMachine(this.#parts.programs);
    listener({ kind: 'offer', machine, stories: this.#stories.map(offered) });
    for (const message of this.#messages) listener(message);
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Begins a run.
   *
   * @param wanted `title`, `lock` and `protection` as offered
   * @throws {RefusedError} if it cannot be played now
   */
  begin(wanted: Readonly<Record<string, unknown>>): void {
    if (this.#isRunning) throw new RefusedError('a run is in progress; wait for its end');
    const story = this.#stories.find(({ title }) => title === wanted.title);
    const variant =
      story &&
      variantsOf(story).find(({ lock, protection }) => {
        return lock === wanted.lock && protection === wanted.protection;
      });
    const store = story && this.#parts.stores.find(({ kind }) => isPlayedOn(story, kind));
    if (!variant || !store) throw new RefusedError('no such story is offered');
    this.#isRunning = true;
    this.#messages = [];
    this.#run(variant, store)
      .catch((error: unknown) => {
        const reason = error instanceof TestbedError ? error.message : String(error);
        this.#send({ kind: 'failed', reason });
      })
      .finally(() => {
        this.#isRunning = false;
        this.#own = null;
      });
  }

  /** Makes a fault in the visitor's own run. @throws {RefusedError} if it cannot be made now */
  async act(action: Action): Promise<void> {
    if (!this.#own) throw new RefusedError('no run of your own is in progress');
    try {
      await this.#own.act(action);
    } catch (error) {
      throw new RefusedError(error instanceof Error ? error.message : String(error));
    }
  }

  async #run({ story, lock, protection }: Variant, store: Store): Promise<void> {
    const { title, number } = story;
    const variant = { title, lock, protection, story: number || null, store: store.kind };
    const names = this.#parts.nodes.map(({ name }) => name);
    this.#send({ kind: 'begin', variant, nodes: names });
    const leases: SeenLease[] = [];
    const events = await perform({
      variant: { story, lock, protection },
      store,
      servers: this.#parts.nodes,
      play: async (controls) => {
        if (story !== ownRun) return story.play(controls);
        this.#own = new OwnRun(controls, names, (message) => this.#send(message));
        return this.#own.play();
      },
      onStart: (history, nodes) => {
        history.onEvent((event) => this.#send({ kind: 'event', event }));
        return this.#watchAll(names, { history, nodes, leases });
      },
    });
    const { date, commit, machine } = await describeMachine(this.#parts.programs);
    const verdict = checkHistory(events, missingStep(story, events));
    const recording = await seal({
      format: FORMAT,
      date,
      commit,
      machine,
      variant,
      nodes: names,
      events,
      leases,
      endMs: events.at(-1)?.atMs ?? 0,
      verdict,
    });
    this.#send({ kind: 'end', recording });
  }

  /** Sends the leases and the time to the pages, until the result is disposed. */
  #watchAll(names: readonly string[], seen: Seen): AsyncDisposable {
    const over = new AbortController();
    const watching = Promise.all([
      this.#tick(seen.history, over.signal),
      ...names.map((name) => this.#watch(name, seen, over.signal)),
    ]);
    return {
      async [Symbol.asyncDispose]() {
        over.abort();
        await watching;
      },
    };
  }

  async #tick(history: History, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#send({ kind: 'now', atMs: history.nowMs }, false);
      await setTimeout(TICK_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Asks a node again and again for its lease. */
  async #watch(name: string, seen: Seen, signal: AbortSignal): Promise<void> {
    const { history, nodes, leases } = seen;
    const over = new Promise<undefined>((resolve) => {
      signal.addEventListener('abort', () => resolve(undefined));
    });
    const put = (at: number, lease: SeenLease): void => {
      leases[at] = lease;
      this.#send({ kind: 'lease', at, lease });
    };
    let open: { readonly at: number; readonly owner: string } | null = null;
    while (!signal.aborted) {
      // A node does not answer during a failover. The end of the run ends this wait, too.
      const found = await Promise.race([nodes.lease(name).catch(() => undefined), over]);
      await setTimeout(LOOK_MS, undefined, { signal }).catch(() => undefined);
      if (found === undefined) continue;
      const nowMs = history.nowMs;
      const before = open && leases[open.at];
      if (open && before && found?.owner !== open.owner) {
        put(open.at, { ...before, untilMs: nowMs });
        open = null;
      }
      if (found && !open) {
        open = { at: leases.length, owner: found.owner };
        put(open.at, { node: name, token: found.token, fromMs: nowMs, untilMs: null });
      }
    }
  }

  #send(message: FeedMessage, isKept = true): void {
    if (isKept) this.#messages.push(message);
    for (const listener of this.#listeners) listener(message);
  }
}

function offered(story: Story): OfferedStory {
  const variants = variantsOf(story).map(({ lock, protection }) => ({ lock, protection }));
  return { story: story.number || null, title: story.title, variants };
}
