import { setTimeout as sleep } from 'node:timers/promises';
import type { GuardedProcess } from './guardian.js';
import { processState } from './process.js';
import { type Launch, launch, untilItAnswers } from './server.js';

const STATE_POLL_MS = 1;

/**
 * Faults of a server. On servers of the environment they throw a `TestbedError` with code
 * `not-ours`.
 */
export interface ServerFaults {
  /** Process id. Undefined if the server does not run, or is no process of the testbed. */
  readonly pid: number | undefined;
  /** Kills it with SIGKILL. Data that are not on disk are lost. Resolves when it has ended. */
  kill(): Promise<void>;
  /** Restarts a killed server on its port, with the data on its disk. Resolves when it answers. */
  start(): Promise<void>;
  /** Stops it with SIGSTOP. It keeps memory and connections. Resolves when it is stopped. */
  pause(): Promise<void>;
  /** Continues it with SIGCONT. For the server, the time has jumped. */
  wake(): Promise<void>;
}

/** A server that is a process of the testbed. */
export class StoppableServer implements ServerFaults, AsyncDisposable {
  readonly #title: string;
  readonly #launch: Launch;
  readonly #ask: (pid: number) => Promise<string>;
  #process: GuardedProcess | undefined;
  #program = '';

  /**
   * @param title for messages
   * @param ask returns the server's name and version, and rejects until the process `pid` answers
   */
  constructor(title: string, launch: Launch, ask: (pid: number) => Promise<string>) {
    this.#title = title;
    this.#launch = launch;
    this.#ask = ask;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Name and version, after the first start. */
  get program(): string {
    return this.#program;
  }

  async start(): Promise<void> {
    if (this.#process !== undefined) throw new Error(`${this.#title} runs already`);
    const started = await launch(this.#launch);
    this.#process = started;
    void started.exited.then(() => {
      if (this.#process === started) this.#process = undefined;
    });
    this.#program = await untilItAnswers(started, () => this.#ask(started.pid));
  }

  async kill(): Promise<void> {
    const running = this.#running();
    running.signal('SIGKILL');
    await running.exited;
  }

  async pause(): Promise<void> {
    const { pid, signal } = this.#running();
    signal('SIGSTOP');
    while ((await processState(pid)) !== 'T') await sleep(STATE_POLL_MS);
  }

  async wake(): Promise<void> {
    const { pid, signal } = this.#running();
    signal('SIGCONT');
    while ((await processState(pid)) === 'T') await sleep(STATE_POLL_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process?.end();
  }

  #running(): GuardedProcess {
    if (this.#process === undefined) throw new Error(`${this.#title} is not running`);
    return this.#process;
  }
}
