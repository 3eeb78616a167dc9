import type { ControlledClient, Controls } from '../controls.js';
import { protections } from '../job.js';
import type { Story } from '../stories/story.js';
import type { Action, FeedMessage } from './feed.js';

const TIMES = { ttlMs: 6_000, waitMs: 60_000, workMs: 3_000 };

/** A run in which the reader makes the faults. */
export const ownRun: Story = {
  number: 0,
  title: 'Your own run',
  source: 'the buttons of the page',
  summary: 'Two clients add their lines to the document. You make the faults.',
  lesson: 'Only the storage can refuse a late write.',
  breaks: 'nodes',
  pinned: Object.fromEntries(
    protections.filter((one) => one !== 'metadata').map((one) => [one, 'unknown']),
  ),
  steps: [],
  play: () => Promise.reject(new Error('a run of the reader needs an OwnRun')),
};

type Client = ControlledClient & { readonly pid: number };

/** Starts both clients, and makes the faults that the reader asks for. */
export class OwnRun {
  readonly #controls: Controls;
  readonly #send: (message: FeedMessage) => void;
  readonly #clients = new Map<1 | 2, Client>();
  readonly #nodes: readonly string[];
  #awaitsPacket = false;

  constructor(controls: Controls, nodes: readonly string[], send: (message: FeedMessage) => void) {
    this.#controls = controls;
    this.#nodes = nodes;
    this.#send = send;
  }

  /** Starts client 2 when client 1 works. Resolves when both have ended. */
  async play(): Promise<void> {
    const first = this.#start(1);
    await Promise.race([first, this.#controls.history.recorded('client 1', 'read', 'ok', 1)]);
    await Promise.all([first, this.#start(2)]);
  }

  /** @throws {RangeError} if the action does not fit the state of the run */
  async act({ action, client: number, node }: Action): Promise<void> {
    if (action === 'hold' || action === 'deliver') return this.#packets(action === 'hold');
    if (action === 'wipe') {
      if (node === undefined || !this.#nodes.includes(node))
        throw new RangeError(`there is no lock node ${node}`);
      return this.#controls.wipe(node);
    }
    const client = number && this.#clients.get(number);
    if (!client) throw new RangeError(`client ${number} does not run`);
    if (action === 'stop') await client.pause();
    else await client.wake();
    this.#report(number, client.pid, action === 'stop' ? 'stopped' : 'running');
  }

  async #start(number: 1 | 2): Promise<void> {
    const client = await this.#controls.workingClient(number, TIMES);
    this.#clients.set(number, client);
    this.#report(number, client.pid, 'running');
    await client.finished();
    this.#clients.delete(number);
    this.#report(number, client.pid, 'ended');
  }

  #packets(held: boolean): void {
    if (held) {
      this.#controls.holdPackets();
      void this.#noteHeldPacket();
    } else this.#controls.deliver();
    this.#send({ kind: 'packets', held });
  }

  /** Records when a packet waits. The run may end before. */
  async #noteHeldPacket(): Promise<void> {
    if (this.#awaitsPacket) return;
    this.#awaitsPacket = true;
    await this.#controls.packetIsHeld().catch(() => undefined);
    this.#awaitsPacket = false;
  }

  #report(client: 1 | 2, pid: number, state: 'running' | 'stopped' | 'ended'): void {
    this.#send({ kind: 'process', client, pid, state });
  }
}
