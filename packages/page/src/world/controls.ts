import type { ControlledClient, StoryControls } from '../../../demo/src/controls.ts';
import { majorityOf } from '../../../lock/src/core/quorum.ts';
import { type Worker, work } from './work.ts';
import { type ClientNumber, type Station, TTL_MAX_MS, type World } from './world.ts';

/** As in the demo: client 1's TTL, if the story waits for the end of its lease. */
const SHORT_TTL_MS = 2_000;
const WAIT_MS = 30_000;
const TURNED_AWAY_TIMES = 5;
/** Time before a pause, so that a reader sees the client before it is stopped. */
const BEFORE_PAUSE_MS = 100;
/** Time after an event, so that the fault which follows has a later time. */
const NOTICE_MS = 2;
const HOUR_MS = 3_600_000;

interface Start {
  readonly stopAt?: 'acquire' | 'write';
  readonly waitMs?: number;
}

/**
 * Starts the clients of one run in the simulated world, and injects the faults of a story of the
 * demo. Lock nodes have letters.
 */
export class SimulatedControls implements StoryControls {
  readonly #world: World;
  readonly #leaseLasts: boolean;
  /** For each client, the letters of the nodes that it cannot reach when it starts. */
  readonly #unreachable = new Map<ClientNumber, string>();
  #first: Station | null = null;

  constructor(world: World, leaseLasts: boolean) {
    this.#world = world;
    this.#leaseLasts = leaseLasts;
  }

  async client(number: ClientNumber): Promise<ControlledClient> {
    return this.#start(number, {});
  }

  async clientStoppedBeforeWrite(number: ClientNumber): Promise<ControlledClient> {
    return this.#start(number, { stopAt: 'write' });
  }

  async clientThatGivesUp(number: ClientNumber): Promise<ControlledClient> {
    return this.#start(number, { waitMs: 0 });
  }

  async clientStoppedBeforeAcquire(): Promise<ControlledClient> {
    return this.#start(1, { stopAt: 'acquire' });
  }

  gateway = unsupported;

  holdGrants(): void {
    this.#firstStation().computer.holdReplies();
  }

  async grantsAreHeld(): Promise<void> {
    const { machines } = this.#world;
    await this.#hold(machines.map(({ name }) => name).join(''));
    const { computer } = this.#firstStation();
    await this.#world.until(() => computer.heldReplies >= machines.length);
    this.#record('lock nodes', 'hold', 'the grants are held');
  }

  deliverGrants(): void {
    this.#record('lock nodes', 'deliver', 'the grants arrive');
    this.#soon(() => this.#firstStation().computer.deliverReplies());
  }

  holdPackets(): void {
    this.#firstStation().link.isHeld = true;
  }

  async packetIsHeld(): Promise<void> {
    await this.#world.until(() => this.#firstStation().link.holdsRequests);
    this.#record('storage', 'hold', 'packet is held');
  }

  deliver(): void {
    this.#record('storage', 'deliver', 'packet arrives');
    this.#firstStation().link.release();
  }

  loseReplies(): void {
    this.#firstStation().link.isLossy = true;
  }

  async replyIsLost(): Promise<void> {
    await this.#world.until(() => this.#firstStation().link.hasLostReplies);
    this.#record('storage', 'lose', 'reply is lost');
    this.#firstStation().link.cut();
  }

  async leaseEnds(): Promise<void> {
    const { machines } = this.#world;
    const owner = machines.map((one) => this.#world.ownerAt(one)).find(Boolean);
    if (owner === undefined) return;
    const holders = () => machines.filter((one) => this.#world.ownerAt(one) === owner);
    await this.#world.until(() => holders().length < majorityOf(machines.length));
    this.#record('lock nodes', 'expire');
  }

  async reaches(number: ClientNumber, names: string): Promise<void> {
    const others = this.#world.machines.filter(({ name }) => !names.includes(name));
    this.#unreachable.set(number, others.map(({ name }) => name).join(''));
    this.#record('lock nodes', 'reach', `client ${number} reaches only ${letters(names)}`);
  }

  async save(name: string): Promise<void> {
    this.#machine(name).save();
  }

  async restart(names: string, data: 'kept' | 'none'): Promise<void> {
    const how = data === 'none' ? 'without data' : 'with old data';
    const isAll = names.length === this.#world.machines.length;
    const which = isAll ? 'all restart' : `${letters(names)} restarts`;
    await this.#forget(names, `${which} ${how}`, () => {
      for (const name of names) {
        this.#machine(name).crash(data === 'none' ? 'nothing' : 'snapshot');
        this.#machine(name).start();
      }
    });
    await this.#world.readmitByForce();
  }

  jumpAhead(name: string): Promise<void> {
    return this.#forget(name, `${letters(name)}'s clock jumps an hour ahead`, () => {
      this.#machine(name).clockOffsetMs += HOUR_MS;
    });
  }

  cutReplication(): void {
    for (const machine of this.#world.machines) machine.save();
  }

  async failOver(name: string): Promise<void> {
    await this.#forget(name, `${letters(name)} fails over to its replica`, () => {
      this.#machine(name).crash('snapshot');
      this.#machine(name).start();
    });
    await this.#world.readmitByForce();
  }

  #start(number: ClientNumber, { stopAt, waitMs = WAIT_MS }: Start): ControlledClient {
    const station = this.#world.connect(number, this.#unreachable.get(number));
    if (number === 1) this.#first = station;
    const held = Promise.withResolvers<void>();
    const free = Promise.withResolvers<void>();
    const gate = async (): Promise<void> => {
      held.resolve();
      await free.promise;
    };
    const open = async (): Promise<void> => {};
    const worker: Worker = {
      ...this.#world.worker(station),
      waitMs,
      ttlMs: number === 1 && !this.#leaseLasts ? SHORT_TTL_MS : TTL_MAX_MS,
      beforeAcquire: stopAt === 'acquire' ? gate : open,
      beforeWrite: stopAt === 'write' ? gate : open,
    };
    const { promise: finished, resolve, reject } = Promise.withResolvers<void>();
    const begin = (): void => void work(worker).then(resolve, reject);
    this.#soon(() => station.computer.hand('message', null, begin));
    return this.#controlled(station, { held: held.promise, open: free.resolve, finished });
  }

  #controlled(
    { name, computer }: Station,
    run: {
      readonly held: Promise<void>;
      readonly open: () => void;
      readonly finished: Promise<void>;
    },
  ): ControlledClient {
    const turnedAway = this.#world.recorded(name, 'acquire', 'refused', TURNED_AWAY_TIMES);
    const proceed = (): void => this.#soon(() => computer.hand('message', null, run.open));
    const noticed = async (cause: Promise<void>): Promise<void> => {
      await cause;
      await this.#world.pass(NOTICE_MS);
    };
    return {
      reachedWrite: () => noticed(run.held),
      pause: async () => {
        await this.#world.pass(BEFORE_PAUSE_MS);
        computer.stop();
        this.#record(name, 'pause');
        await this.#world.pass(NOTICE_MS);
      },
      wake: async () => {
        this.#record(name, 'wake');
        proceed();
        this.#soon(() => computer.wake());
      },
      proceed,
      finished: () => noticed(run.finished),
      finishedOrTurnedAway: () => noticed(Promise.race([run.finished, turnedAway])),
    };
  }

  /** Invariant: the nodes held the lease before the fault, and do not hold it after the fault. */
  async #forget(names: string, how: string, fault: () => void): Promise<void> {
    await this.#hold(names);
    fault();
    this.#world.noticeBrokenConnections();
    if ([...names].some((name) => this.#world.ownerAt(this.#machine(name)) !== undefined)) {
      throw new Error('a node did not forget its lease');
    }
    this.#record('lock nodes', 'forget', how);
  }

  #hold(names: string): Promise<void> {
    return this.#world.until(() =>
      [...names].every((name) => this.#world.ownerAt(this.#machine(name)) !== undefined),
    );
  }

  #soon(run: () => void | Promise<void>): void {
    const { schedule } = this.#world;
    schedule.at(schedule.nowMs, run);
  }

  #machine(name: string) {
    const found = this.#world.machines.find((one) => one.name === name);
    if (!found) throw new Error(`no such lock node: ${name}`);
    return found;
  }

  #firstStation(): Station {
    if (!this.#first) throw new Error('client 1 has not started');
    return this.#first;
  }

  #record(
    actor: Parameters<World['record']>[0]['actor'],
    operation: Parameters<World['record']>[0]['operation'],
    reason?: string,
  ): void {
    this.#world.record({ actor, operation, phase: 'ok', ...(reason !== undefined && { reason }) });
  }
}

function unsupported(): never {
  throw new Error('the simulated world has no gateways');
}

/** `abc` as the demo shows it: `A, B, C`. */
function letters(names: string): string {
  return [...names.toUpperCase()].join(', ');
}
