import { StoreUnavailableError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import { waitFor } from '../runtime.js';
import { type Checks, counted, isCut, PACE_MS, type Tried } from './checks.js';

/**
 * Moto 5 with threads checks a condition, and writes some 0.1 ms later without a lock. Under load
 * it loses an acknowledged write, but hardly ever in a race that a probe can afford. So it is
 * recognised by its web server.
 */
const LOCKLESS_SERVER = /Werkzeug\//;
/** If so many later writes of another key are answered first, a write counts as queued. */
const WRITES_ELSEWHERE = 8;
/** Time (ms) in which all writers of a race must have sent the first half of their bodies. */
const GATHER_MS = 1_000;
/** Time (ms) in which the server must have read what was sent, because no reply shows it. */
const READ_MS = 50;
/** The same for a short race, of which there are many. */
const READ_BRIEFLY_MS = 10;
/** Number of times that a race is run whose writers the server has all throttled. */
const THROTTLED_RACES_MAX = 4;

/** Called in the middle of a body; the rest waits for it. */
export type Halfway = () => Promise<unknown>;

/** Sends one writer of a race. */
export type SendRacer = (halfway: Halfway) => Promise<Tried>;

/** A race of writers that want to replace one version of a key. */
export interface Race {
  readonly check: string;
  readonly key: string;
  /** The version that their condition names; null for no object. */
  readonly base: string | null;
  /** They hold back the second half of their bodies. */
  readonly racers: readonly SendRacer[];
}

const noWait: Halfway = async () => undefined;

/** Lets all writers wait until the last one is there, so that they go on at the same moment. */
class StartLine {
  /** Settles when the writers may go on. */
  readonly opened: Promise<void>;
  readonly #all = Promise.withResolvers<void>();
  #missing: number;

  /** @param open waits for the last writer, and as long as it likes */
  constructor(count: number, open: (all: Promise<void>) => Promise<void>) {
    this.#missing = count;
    this.opened = open(this.#all.promise);
  }

  /** Sends a writer. One that ends before it waits is not waited for. */
  enter(send: SendRacer): Promise<Tried> {
    let isThere = false;
    const arrive = (): void => {
      if (!isThere) this.#missing--;
      isThere = true;
      if (this.#missing === 0) this.#all.resolve();
    };
    return send(async () => {
      arrive();
      await this.opened;
    }).finally(arrive);
  }
}

/**
 * Writers of one key under one condition, of which one may win.
 *
 * Two writers meet inside of a server by chance only, unless each holds its last bytes back until
 * all are there. The server has then read the headers of all, and perhaps checked their conditions,
 * and gets all bodies at once.
 */
export class Races {
  readonly #checks: Checks;

  constructor(checks: Checks) {
    this.#checks = checks;
  }

  /**
   * A race of several writers and a long one. The long one sends the rest of its body only after
   * the others have been answered. A server that checks the condition when the headers come, and
   * stores the body when it is there, applies two.
   *
   * A server that takes the writers of one key in turn answers the others only after the long one.
   * It is recognised by its answers to requests `elsewhere` before that.
   *
   * The small bodies of the probe show that best. A server that refuses a large body early may cut
   * its connection. With `mayBeCut`, a long write without an answer is sent again as a late one,
   * which must change nothing.
   *
   * @param elsewhere requests of another key; begun when the others go on
   */
  async overtaken(
    race: Race & { readonly long: SendRacer; readonly mayBeCut?: boolean },
    elsewhere: () => Promise<unknown>,
  ): Promise<{ readonly first: Tried; readonly stored: Stored }> {
    const { check, racers, long } = race;
    const { runtime, requests } = this.#checks.probed;
    const { timeoutMs } = requests.sender;
    let beside: Promise<unknown> | undefined;
    let isOvertaken = false;
    const run = async (): Promise<readonly Tried[]> => {
      const isHalfSent = Promise.withResolvers<void>();
      const isReleased = Promise.withResolvers<void>();
      const halfway = async (): Promise<void> => {
        isHalfSent.resolve();
        await isReleased.promise;
      };
      const first = long(halfway).finally(isHalfSent.resolve);
      await waitFor(runtime, isHalfSent.promise, timeoutMs / 4);
      await runtime.sleep(READ_MS);
      const line = this.#line(racers.length, READ_MS);
      let answered = 0;
      const shorts = racers.map((send) => line.enter(send));
      for (const short of shorts) void short.then(() => answered++);
      const all = Promise.all(shorts);
      await line.opened;
      beside ??= elsewhere();
      await waitFor(runtime, Promise.race([all, beside]), timeoutMs / 4);
      isOvertaken = answered > 0;
      if (this.#checks.isPaced) await runtime.sleep(PACE_MS);
      isReleased.resolve();
      return [await first, ...(await all)];
    };
    const tried = await this.#unlessThrottled(race, run);
    await beside;
    const stored = await this.oneWinner(race, tried);
    const [first] = tried as [Tried];
    // The outcome of the overtaken write must be known.
    const { reply } = first;
    if ('error' in reply && reply.meaning !== 'refused' && reply.meaning !== 'throttled') {
      if (!race.mayBeCut || !isCut(reply) || first.writeId === stored.writeId) throw reply.error;
      await this.#checks.late(`${check}-cut`, race.key, stored.version, () => long(noWait));
    }
    if (isOvertaken && LOCKLESS_SERVER.test(requests.sender.peer))
      throw this.#checks.failed(
        check,
        { sent: `${tried.length} × ${first.sent} at once`, answered: `by ${requests.sender.peer}` },
        'this server (moto) checks a condition and writes without a lock in between: start it without threads',
      );
    return { first, stored };
  }

  /** Lets writers of one key go on at the same moment. Returns the replies. */
  run(race: Race): Promise<readonly Tried[]> {
    return this.#unlessThrottled(race, () => this.together(race.racers, READ_BRIEFLY_MS));
  }

  /** Lets writers of any keys go on at the same moment. */
  together(writers: readonly SendRacer[], readMs: number): Promise<readonly Tried[]> {
    const line = this.#line(writers.length, readMs);
    return Promise.all(writers.map((send) => line.enter(send)));
  }

  /**
   * Short races, each upon the version of the winner before. A loser that is applied nevertheless
   * takes the next race its condition, so only the last race, or one without a winner, is read.
   */
  async brief(
    check: string,
    key: string,
    version: string,
    rounds: number,
    send: (ifMatch: string) => SendRacer,
  ): Promise<void> {
    let base = version;
    for (let round = 1; round <= rounds; round++) {
      const racers = Array(2).fill(send(this.#checks.ifMatch(base)));
      const race = { check, key, base, racers };
      const tried = await this.run(race);
      const [winner, ...more] = tried.filter(({ reply }) => reply.meaning === 'applied');
      const won = more.length === 0 ? winner?.reply.version : undefined;
      base = won && round < rounds ? won : (await this.oneWinner(race, tried)).version;
    }
  }

  /**
   * Checks writers that ran at once under one condition: one must win. Losers may be answered
   * anything (Ceph 16 answers 500 to most), but a success must be the write that is stored.
   */
  async oneWinner({ check, key, base }: Race, tried: readonly Tried[]): Promise<Stored> {
    const stored = await this.#checks.probed.requests.stamp(key);
    const winners = tried.filter(({ reply }) => reply.meaning === 'applied');
    const isOfRace = tried.some(({ writeId }) => writeId === stored?.writeId);
    const sent = `${tried.length} × ${tried[0]?.sent} at once`;
    const asked = { sent, answered: counted(tried.map(({ reply }) => reply.answered)) };
    const isForeign = !isOfRace && (stored?.version ?? null) !== base;
    if (winners.length > 1 || winners.some(({ writeId }) => writeId !== stored?.writeId))
      throw this.#checks.failed(
        check,
        asked,
        `${winners.length} of ${tried.length} writers under one condition were answered with success, which is not what is stored`,
      );
    if (isForeign)
      throw this.#checks.failed(
        check,
        asked,
        'a write that was not answered with success is stored',
      );
    if (stored === null || !isOfRace)
      throw new StoreUnavailableError(
        `none of ${tried.length} writers under one condition had success check=${check}`,
        { cause: tried.map(({ reply }) => reply) },
      );
    this.#checks.note('passed', check, asked);
    return stored;
  }

  /** Small writes of another key, for `overtaken`. */
  async writeElsewhere(key: string): Promise<void> {
    for (let i = 0; i < WRITES_ELSEWHERE; i++) await this.#checks.put(`${key}-elsewhere`, null);
  }

  /** Runs a race again if the server throttled writers of it, and let none win. */
  async #unlessThrottled(
    { key, base }: Race,
    run: () => Promise<readonly Tried[]>,
  ): Promise<readonly Tried[]> {
    for (let runs = 1; ; runs++) {
      await this.#checks.pace(key);
      const tried = await run();
      const meanings = tried.map(({ reply }) => reply.meaning);
      if (meanings.includes('applied') || !meanings.includes('throttled')) return tried;
      const stored = await this.#checks.probed.requests.stamp(key);
      if ((stored?.version ?? null) !== base || runs === THROTTLED_RACES_MAX) return tried;
    }
  }

  #line(count: number, readMs: number): StartLine {
    const { runtime } = this.#checks.probed;
    return new StartLine(count, async (all) => {
      // A client with few connections does not send all at once.
      await waitFor(runtime, all, GATHER_MS);
      if (readMs > 0) await runtime.sleep(readMs);
    });
  }
}
