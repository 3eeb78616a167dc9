import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type GatewayProcess, startGateway } from './process.ts';

/** A gateway at an address of its own, that can be killed and started again. */
export class Phoenix implements AsyncDisposable {
  readonly url: string;
  readonly #config: string;
  readonly #port: number;
  #now: GatewayProcess;

  static async start(config: string): Promise<Phoenix> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    return new Phoenix(config, port, await startGateway(config, { port }));
  }

  private constructor(config: string, port: number, now: GatewayProcess) {
    this.#config = config;
    this.#port = port;
    this.#now = now;
    this.url = now.url;
  }

  async pause(durationMs: number): Promise<void> {
    await this.#now.process.pause();
    await sleep(durationMs);
    await this.#now.process.wake();
  }

  async restart(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    await this.#now.process.kill(signal);
    this.#now = await startGateway(this.#config, { port: this.#port });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#now.process.kill();
  }
}
