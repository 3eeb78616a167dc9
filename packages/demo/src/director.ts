import { type TcpProxy, WorkerProcess } from '@fenced/testbed';
import { openBehindGateways, openFenced, openMarked, openPlain } from './documents/open.js';
import type { Gateways } from './gateways.js';
import { type Event, History } from './history.js';
import { isFenced, type Job, type StoreAddress } from './job.js';
import { type ClientNumber, LockNetwork } from './lock-network.js';
import type { LockNodes } from './lock-nodes.js';
import type { Actor, Stage } from './scenarios/scenario.js';
import { through } from './services.js';

/**
 * Short where the story waits for the end of client 1's lease, but not so short that a slow store lets it end before client 1 writes;
 * client 2 must not lose its own while client 1 acts.
 */
const SHORT_TTL_MS = 2_000;
const LONG_TTL_MS = 10_000;
const WAIT_MS = 30_000;
/** How often a client asks in vain before the story goes on: a node that were let in too early would be by then. */
const TURNED_AWAY_TIMES = 5;
const HOUR_MS = 3_600_000;

const WORKER: URL = new URL('./worker.js', import.meta.url);
const BEFORE_IT_ASKS = { file: WORKER, text: 'const attempt = await lock.tryAcquire' };
/** After the last check, before the write. */
const BEFORE_THE_WRITE = { file: WORKER, text: 'return edited;' };

/** What both clients are told, but where they find it. */
interface Play extends Omit<Job, 'line' | 'ttlMs' | 'waitMs'> {
  readonly storage: StoreAddress;
}

interface Start {
  readonly stopAt?: typeof BEFORE_THE_WRITE;
  readonly waitMs?: number;
}

/** Starts the clients of one cell, does to them and their servers what the story wants, and writes down what is seen. */
export class Director implements Stage, AsyncDisposable {
  readonly history: History = new History();
  readonly #job: Play;
  readonly #proxy: TcpProxy;
  readonly #nodes: LockNodes;
  readonly #network: LockNetwork;
  readonly #leaseLasts: boolean;
  readonly #gateways: Gateways | null;
  readonly #clients: WorkerProcess[] = [];

  /** @param proxy before the storage; client 1's packets pass through it */
  constructor(
    job: Play,
    proxy: TcpProxy,
    nodes: LockNodes,
    leaseLasts: boolean,
    gateways: Gateways | null,
  ) {
    this.#job = job;
    this.#proxy = proxy;
    this.#nodes = nodes;
    this.#network = new LockNetwork(job.lock.nodes);
    this.#leaseLasts = leaseLasts;
    this.#gateways = gateways;
  }

  client(number: ClientNumber): Promise<Actor> {
    return this.#play(number, {});
  }

  clientThatStops(number: ClientNumber): Promise<Actor> {
    return this.#play(number, { stopAt: BEFORE_THE_WRITE });
  }

  clientThatGivesUp(number: ClientNumber): Promise<Actor> {
    return this.#play(number, { waitMs: 0 });
  }

  gateway(): ReturnType<Stage['gateway']> {
    if (!this.#gateways) throw new Error('this story is told without gateways');
    return this.#stoppable('gateway A', this.#gateways.a);
  }

  async clientBeforeItAsks(): Promise<Actor> {
    await this.#network.standBetween(1);
    const process = await this.#start(1, { stopAt: BEFORE_IT_ASKS });
    await process.reachedStop();
    return this.#actor(1, process);
  }

  holdPackets(): void {
    this.#proxy.hold('toServer');
  }

  async packetIsHeld(): Promise<void> {
    await this.#proxy.untilHeld('toServer');
    this.#note('storage', 'hold', 'packet is held');
  }

  deliver(): void {
    this.#note('storage', 'deliver', 'packet arrives');
    this.#proxy.release('toServer');
  }

  loseReplies(): void {
    this.#proxy.swallow('toClient');
  }

  async replyIsLost(): Promise<void> {
    await this.#proxy.untilSwallowed('toClient');
    this.#note('storage', 'lose', 'reply is lost');
    this.#proxy.cut();
    this.#proxy.heal();
  }

  async leaseIsOver(): Promise<void> {
    if (this.#job.protection === 'none') return;
    await this.#nodes.leaseIsOver();
    this.#note('lock nodes', 'expire');
  }

  holdGrants(): void {
    this.#network.holdAnswers();
  }

  async grantsAreHeld(): Promise<void> {
    await this.#nodes.hold(this.#allNodes());
    await this.#network.answersAreHeld();
    this.#note('lock nodes', 'hold', 'the grants are held');
  }

  deliverGrants(): void {
    this.#note('lock nodes', 'deliver', 'the grants arrive');
    this.#network.deliverAnswers();
  }

  async reaches(number: ClientNumber, names: string): Promise<void> {
    await this.#network.reaches(number, names);
    this.#note('lock nodes', 'reach', `client ${number} reaches only ${spell(names)}`);
  }

  save(name: string): Promise<void> {
    return this.#nodes.save(name);
  }

  restart(names: string, data: 'kept' | 'none'): Promise<void> {
    const how = data === 'none' ? 'without data' : 'with old data';
    const who = names === this.#allNodes() ? 'all restart' : `${spell(names)} restarts`;
    return this.#forget(names, `${who} ${how}`, () => this.#nodes.restart(names, data));
  }

  jumpAhead(name: string): Promise<void> {
    const how = `${spell(name)}'s clock jumps an hour ahead`;
    return this.#forget(name, how, () => this.#nodes.moveClock(name, HOUR_MS));
  }

  cutReplication(): void {
    this.#nodes.cutReplication();
  }

  failOver(name: string): Promise<void> {
    return this.#forget(name, `${spell(name)} fails over to its replica`, async () =>
      this.#network.redirect(name, await this.#nodes.failOver(name)),
    );
  }

  /** Reads what is stored in the end, directly and as the clients would. */
  async readFinalState(): Promise<void> {
    await using document = await this.#opener()(this.#job.storage);
    this.history.record({
      actor: 'storage',
      operation: 'final',
      phase: 'ok',
      lines: await document.read(),
      ...('highest' in document && { token: (await document.highest()).toString() }),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.kill()));
    await this.#network[Symbol.asyncDispose]();
  }

  #opener() {
    const { protection } = this.#job;
    if (this.#gateways) return openBehindGateways;
    if (!isFenced(protection)) return openPlain;
    return protection === 'metadata' ? openMarked : openFenced;
  }

  async #play(number: ClientNumber, start: Start): Promise<Actor> {
    return this.#actor(number, await this.#start(number, start));
  }

  async #start(number: ClientNumber, { stopAt, waitMs = WAIT_MS }: Start): Promise<WorkerProcess> {
    const name = `client ${number}` as const;
    const job: Job = {
      ...this.#job,
      ...(this.#gateways?.addresses(number) ?? this.#addresses(number)),
      line: name,
      waitMs,
      ttlMs: number === 1 && !this.#leaseLasts ? SHORT_TTL_MS : LONG_TTL_MS,
    };
    const process = await WorkerProcess.start(WORKER, {
      ...(stopAt && { stopAt }),
      args: [JSON.stringify(job)],
      onLine: (line) => this.history.record({ actor: name, ...JSON.parse(line) }),
    });
    this.#clients.push(process);
    return process;
  }

  #addresses(number: ClientNumber): Pick<Job, 'lock' | 'storage'> {
    const { storage, lock } = this.#job;
    const { host, port } = this.#proxy;
    return {
      lock: { ...lock, nodes: this.#network.addresses(number) },
      storage: number === 1 ? through(storage, host, port) : storage,
    };
  }

  #actor(number: ClientNumber, process: WorkerProcess): Actor {
    const name = `client ${number}` as const;
    const finished = async (): Promise<void> => {
      const { code, signal } = await process.exited;
      if (code !== 0) {
        throw new Error(`${name} crashed code=${code} signal=${signal} ${process.stderr}`);
      }
    };
    return {
      ...this.#stoppable(name, process),
      proceed: () => process.proceed(),
      finished,
      finishedOrTurnedAway: () =>
        Promise.race([
          finished(),
          this.history.recorded(name, 'acquire', 'refused', TURNED_AWAY_TIMES),
        ]),
    };
  }

  #stoppable(name: Event['actor'], process: WorkerProcess): ReturnType<Stage['gateway']> {
    return {
      reachedItsWrite: () => process.reachedStop(),
      pause: async () => {
        await process.pause();
        this.#note(name, 'pause');
      },
      wake: async () => {
        this.#note(name, 'wake');
        await process.wake();
      },
    };
  }

  /** Does to lock nodes what makes them forget the lease that they hold; sees that they held it, and that they do no more. */
  async #forget(names: string, how: string, fault: () => Promise<void>): Promise<void> {
    await this.#nodes.hold(names);
    await fault();
    await this.#nodes.haveForgotten(names);
    this.#note('lock nodes', 'forget', how);
  }

  #allNodes(): string {
    return this.#job.lock.nodes.map(({ name }) => name).join('');
  }

  #note(actor: Event['actor'], operation: Event['operation'], reason?: string): void {
    this.history.record({
      actor,
      operation,
      phase: 'ok',
      ...(reason !== undefined && { reason }),
    });
  }
}

/** As the article calls them: `A, B, C`. */
function spell(names: string): string {
  return [...names.toUpperCase()].join(', ');
}
