import { type TcpProxy, WorkerProcess } from '@fenced/testbed';
import { openBehindGateways, openFenced, openPlain, openWithMetadata } from './documents/open.js';
import type { Gateways } from './gateways.js';
import { type Event, History } from './history.js';
import { isFenced, type Job, type StoreAddress } from './job.js';
import { type ClientNumber, LockNetwork } from './lock-network.js';
import type { LockNodes } from './lock-nodes.js';
import { through } from './services.js';
import { ShellJob } from './shell-job.js';

/**
 * Client 1's TTL, if the story waits for the end of its lease. A slow store needs a part of it
 * before the write.
 */
const SHORT_TTL_MS = 2_000;
/** The TTL of other leases. Client 2's lease lasts while client 1 acts. */
const LONG_TTL_MS = 10_000;
const WAIT_MS = 30_000;
/**
 * The story continues after this many refusals of a client. A node that votes too early grants the
 * lock within these tries.
 */
const TURNED_AWAY_TIMES = 5;
const HOUR_MS = 3_600_000;
/** The exit code of `fenced run` after it lost its lease. */
const EXIT_LEASE_LOST = 79;

const WORKER: URL = new URL('./worker.js', import.meta.url);
const BEFORE_ACQUIRE = { file: WORKER, text: 'const attempt = await lock.tryAcquire' };
/** The statement after the client's last check of its lease. */
const BEFORE_WRITE = { file: WORKER, text: 'return edited;' };

/** The part of the job that both clients share. */
interface SharedJob extends Omit<Job, 'line' | 'ttlMs' | 'waitMs' | 'workMs'> {
  readonly storage: StoreAddress;
}

type Start = Partial<Pick<Job, 'ttlMs' | 'waitMs' | 'workMs'>> & {
  readonly stopAt?: typeof BEFORE_WRITE;
};

interface Parts {
  readonly job: SharedJob;
  /** Stands before the storage. Client 1's packets pass through it. */
  readonly proxy: TcpProxy;
  readonly nodes: LockNodes;
  readonly leaseLasts: boolean;
  readonly gateways: Gateways | null;
  readonly underFencedRun: boolean;
}

/** A client or a gateway: a real process. */
interface Stoppable {
  /** Resolves when the process is held before its write. */
  reachedWrite(): Promise<void>;
  /** Stops the process (SIGSTOP). Resolves when the kernel reports that it is stopped. */
  pause(): Promise<void>;
  /** Continues the process (SIGCONT), also if it is held. */
  wake(): Promise<void>;
}

export interface ControlledClient extends Stoppable {
  /** Continues a held client. */
  proceed(): void;
  /** Resolves when the client's program has ended. */
  finished(): Promise<void>;
  /** Resolves when the client was refused the lock several times, or its program has ended. */
  finishedOrTurnedAway(): Promise<void>;
}

/**
 * Starts the clients of one run, injects the story's faults, and records the history. Lock nodes
 * have letters: `abc` names three nodes.
 */
export class Controls implements AsyncDisposable {
  readonly history: History = new History();
  readonly #parts: Parts;
  readonly #network: LockNetwork;
  readonly #clients: AsyncDisposable[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#network = new LockNetwork(parts.job.lock.nodes);
  }

  /** Starts a client without faults. */
  client(number: ClientNumber): Promise<ControlledClient> {
    return this.#client(number, {});
  }

  /** Starts a client that is held before its write, until `proceed` or `wake`. */
  clientStoppedBeforeWrite(number: ClientNumber): Promise<ControlledClient> {
    return this.#client(number, { stopAt: BEFORE_WRITE });
  }

  /** Starts a client that works for a time between its last check and its write. */
  async workingClient(
    number: ClientNumber,
    times: Required<Pick<Job, 'ttlMs' | 'waitMs' | 'workMs'>>,
  ): Promise<ControlledClient & { readonly pid: number }> {
    const process = await this.#start(number, times);
    return { ...this.#controlled(number, process), pid: process.pid };
  }

  /** Starts a client that asks for the lock once, and ends if it is refused. */
  clientThatGivesUp(number: ClientNumber): Promise<ControlledClient> {
    return this.#client(number, { waitMs: 0 });
  }

  /** Starts client 1. It is connected to the lock nodes, and held before it asks for the lock. */
  async clientStoppedBeforeAcquire(): Promise<ControlledClient> {
    await this.#network.addProxies(1);
    const process = await this.#start(1, { stopAt: BEFORE_ACQUIRE });
    await process.reachedStop();
    return this.#controlled(1, process);
  }

  /** Returns client 1's gateway, which is held before its first write until `wake`. */
  gateway(): Stoppable {
    const { gateways } = this.#parts;
    if (!gateways) throw new Error('this story has no gateways');
    const { a } = gateways;
    return { ...this.#stoppable('gateway A', a), reachedWrite: () => a.reachedStop() };
  }

  /** From now on, packets of client 1 to the storage wait in the network. */
  holdPackets(): void {
    this.#parts.proxy.hold('toServer');
  }

  /** Resolves when a packet of client 1 to the storage waits. */
  async packetIsHeld(): Promise<void> {
    await this.#parts.proxy.untilHeld('toServer');
    this.#record('storage', 'hold', 'packet is held');
  }

  /** Delivers the waiting packets. */
  deliver(): void {
    const { proxy } = this.#parts;
    if (proxy.heldBytes('toServer') > 0) this.#record('storage', 'deliver', 'packet arrives');
    proxy.release('toServer');
  }

  /** From now on, replies of the storage to client 1 are lost. */
  loseReplies(): void {
    this.#parts.proxy.swallow('toClient');
  }

  /** Resolves when a reply was lost. Its connection breaks; new connections work. */
  async replyIsLost(): Promise<void> {
    const { proxy } = this.#parts;
    await proxy.untilSwallowed('toClient');
    this.#record('storage', 'lose', 'reply is lost');
    proxy.cut();
    proxy.heal();
  }

  /** Resolves when no majority of the lock nodes holds the present lease. */
  async leaseEnds(): Promise<void> {
    const { job, nodes } = this.#parts;
    if (job.protection === 'none') return;
    // Other lock services do not show their leases. But client 2 gets the lock only after the end
    // of the lease.
    if (job.lock.service) await this.history.recorded('client 2', 'acquire', 'ok', 1);
    else await nodes.leaseEnds();
    this.#record('lock nodes', 'expire');
  }

  /** From now on, replies of the lock nodes to client 1 wait in the network. */
  holdGrants(): void {
    this.#network.holdReplies();
  }

  /** Resolves when every lock node holds the lock for client 1, and every reply waits. */
  async grantsAreHeld(): Promise<void> {
    await this.#parts.nodes.hold(this.#allNodes());
    await this.#network.repliesAreHeld();
    this.#record('lock nodes', 'hold', 'the grants are held');
  }

  /** Delivers the waiting replies. */
  deliverGrants(): void {
    this.#record('lock nodes', 'deliver', 'the grants arrive');
    this.#network.deliverReplies();
  }

  /** Lets a client that starts later reach only these lock nodes. */
  async reaches(number: ClientNumber, names: string): Promise<void> {
    await this.#network.reaches(number, names);
    this.#record('lock nodes', 'reach', `client ${number} reaches only ${letters(names)}`);
  }

  /** Saves the lock node's data to disk. */
  save(name: string): Promise<void> {
    return this.#parts.nodes.save(name);
  }

  /** Kills and restarts lock nodes, with the data on disk or without. They forget the lease. */
  restart(names: string, data: 'kept' | 'none'): Promise<void> {
    const how = data === 'none' ? 'without data' : 'with old data';
    const which = names === this.#allNodes() ? 'all restart' : `${letters(names)} restarts`;
    return this.#forget(names, `${which} ${how}`, () => this.#parts.nodes.restart(names, data));
  }

  /** Kills and restarts a lock node without its data, also if it holds no lease. */
  async wipe(name: string): Promise<void> {
    await this.#parts.nodes.restart(name, 'none');
    this.#record('lock nodes', 'forget', `${letters(name)} restarts without data`);
  }

  /** Moves the lock node's clock one hour ahead. By that clock, the lease is over. */
  jumpAhead(name: string): Promise<void> {
    const how = `${letters(name)}'s clock jumps an hour ahead`;
    return this.#forget(name, how, () => this.#parts.nodes.moveClock(name, HOUR_MS));
  }

  /** From now on, the replica receives nothing. */
  cutReplication(): void {
    this.#parts.nodes.cutReplication();
  }

  /** Kills the lock node and promotes its replica, which does not know the lease. */
  failOver(name: string): Promise<void> {
    return this.#forget(name, `${letters(name)} fails over to its replica`, async () =>
      this.#network.redirect(name, await this.#parts.nodes.failOver(name)),
    );
  }

  /** Records what is stored in the end. This read bypasses the proxy. */
  async readFinalState(): Promise<void> {
    await using document = await this.#opener()(this.#parts.job.storage);
    this.history.record({
      actor: 'storage',
      operation: 'final',
      phase: 'ok',
      lines: await document.read(),
      ...('highest' in document && { token: (await document.highest()).toString() }),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clients.map((client) => client[Symbol.asyncDispose]()));
    await this.#network[Symbol.asyncDispose]();
  }

  #opener() {
    const { job, gateways } = this.#parts;
    if (gateways) return openBehindGateways;
    if (!isFenced(job.protection)) return openPlain;
    return job.protection === 'metadata' ? openWithMetadata : openFenced;
  }

  async #client(number: ClientNumber, start: Start): Promise<ControlledClient> {
    if (this.#parts.underFencedRun) return this.#shellJob(number, start);
    return this.#controlled(number, await this.#start(number, start));
  }

  async #start(number: ClientNumber, { stopAt, ...times }: Start): Promise<WorkerProcess> {
    const process = await WorkerProcess.start(WORKER, {
      ...(stopAt && { stopAt }),
      args: [JSON.stringify({ ...this.#job(number), ...times })],
      onLine: this.#recorder(number),
    });
    this.#clients.push(process);
    return process;
  }

  /**
   * Starts a shell job under `fenced run`. A job that is to stop before its write gets its report
   * later.
   */
  async #shellJob(number: ClientNumber, { stopAt }: Start): Promise<ControlledClient> {
    const job = this.#job(number);
    const shell = await ShellJob.start(job, this.history, `client ${number}`);
    this.#clients.push(shell);
    if (!stopAt) await shell.deliverReport();
    return {
      ...this.#controlled(number, shell.process),
      ...this.#stoppable(`client ${number}`, shell),
      reachedWrite: () => shell.reachedWrite(),
    };
  }

  #job(number: ClientNumber): Job {
    const { job, gateways, leaseLasts } = this.#parts;
    return {
      ...job,
      ...(gateways?.addresses(number) ?? this.#addresses(number)),
      line: `client ${number}`,
      waitMs: WAIT_MS,
      ttlMs: number === 1 && !leaseLasts ? SHORT_TTL_MS : LONG_TTL_MS,
    };
  }

  #recorder(number: ClientNumber): (line: string) => void {
    return (line) => this.history.record({ actor: `client ${number}`, ...JSON.parse(line) });
  }

  #addresses(number: ClientNumber): Pick<Job, 'lock' | 'storage'> {
    const { job, proxy } = this.#parts;
    return {
      lock: { ...job.lock, nodes: this.#network.addresses(number) },
      storage: number === 1 ? through(job.storage, proxy.host, proxy.port) : job.storage,
    };
  }

  #controlled(number: ClientNumber, process: WorkerProcess): ControlledClient {
    const name = `client ${number}` as const;
    const finished = async (): Promise<void> => {
      const { code, signal } = await process.exited;
      if (code !== 0 && !(this.#parts.underFencedRun && code === EXIT_LEASE_LOST)) {
        throw new Error(`${name} crashed code=${code} signal=${signal} ${process.stderr}`);
      }
    };
    return {
      ...this.#stoppable(name, process),
      reachedWrite: () => process.reachedStop(),
      proceed: () => process.proceed(),
      finished,
      finishedOrTurnedAway: () =>
        Promise.race([
          finished(),
          this.history.recorded(name, 'acquire', 'refused', TURNED_AWAY_TIMES),
        ]),
    };
  }

  #stoppable(name: Event['actor'], process: Pick<Stoppable, 'pause' | 'wake'>) {
    return {
      pause: async () => {
        await process.pause();
        this.#record(name, 'pause');
      },
      wake: async () => {
        this.#record(name, 'wake');
        await process.wake();
      },
    };
  }

  /** Invariant: the nodes held the lease before the fault, and do not hold it after the fault. */
  async #forget(names: string, how: string, fault: () => Promise<void>): Promise<void> {
    const { nodes } = this.#parts;
    await nodes.hold(names);
    await fault();
    await nodes.haveForgotten(names);
    this.#record('lock nodes', 'forget', how);
  }

  #allNodes(): string {
    return this.#parts.job.lock.nodes.map(({ name }) => name).join('');
  }

  #record(actor: Event['actor'], operation: Event['operation'], reason?: string): void {
    this.history.record({
      actor,
      operation,
      phase: 'ok',
      ...(reason !== undefined && { reason }),
    });
  }
}

/** The controls that a story uses. The page implements them for its simulated world. */
export type StoryControls = Omit<
  Controls,
  'history' | 'readFinalState' | 'workingClient' | 'wipe' | typeof Symbol.asyncDispose
>;

/** `abc` as the timeline shows it: `A, B, C`. */
function letters(names: string): string {
  return [...names.toUpperCase()].join(', ');
}
