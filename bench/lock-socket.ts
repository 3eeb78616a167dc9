import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Redis } from 'ioredis';
import { newOwner } from './lock-raw.ts';
import type { Acquire, LockSettings } from './lock-subject.ts';

/** Takes each key with its owner and TTL; 0 deletes. Returns a 1 or a 0 for each. */
const SCRIPT = `local flags = {}
for i, key in ipairs(KEYS) do
  local owner, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  if ttl ~= '0' then
    flags[i] = redis.call('SET', key, owner, 'PX', ttl, 'NX') and '1' or '0'
  else
    flags[i] = redis.call('GET', key) == owner and redis.call('DEL', key) == 1 and '1' or '0'
  end
end
return table.concat(flags)`;

/** A call and its votes. */
interface Call {
  readonly key: string;
  readonly owner: string;
  readonly ttlMs: number;
  readonly decide: (isYes: boolean) => void;
  yes: number;
  no: number;
}

/**
 * The floor: hand-written RESP over `node:net`. All calls of a tick are one EVALSHA, and every node
 * gets the same bytes. The majority's bits decide a call. It does not wait for held locks and does
 * not handle failures.
 */
export async function openSocket(
  clients: readonly Redis[],
  settings: LockSettings,
  script = SCRIPT,
): Promise<Acquire> {
  const sockets = await Promise.all(clients.map(({ options }) => open(Number(options.port))));
  const hashes = await Promise.all(clients.map((client) => client.script('LOAD', script)));
  const batcher = new Batcher(sockets, String(hashes[0]));
  return async (resource) => {
    const owner = newOwner();
    if (!(await batcher.call(resource, owner, settings.ttlMs))) throw new Error(`held ${resource}`);
    return () => batcher.call(resource, owner, 0);
  };
}

async function open(port: number): Promise<Socket> {
  const socket = connect(port).setNoDelay(true).setEncoding('latin1');
  await once(socket, 'connect');
  return socket;
}

class Batcher {
  readonly #sockets: readonly Socket[];
  readonly #hash: string;
  readonly #quorum: number;
  /** Unanswered batches of each socket, oldest first. */
  readonly #unanswered: Call[][][];
  #calls: Call[] = [];

  constructor(sockets: readonly Socket[], hash: string) {
    this.#sockets = sockets;
    this.#hash = hash;
    this.#quorum = Math.floor(sockets.length / 2) + 1;
    this.#unanswered = sockets.map(() => []);
    for (const [index, socket] of sockets.entries()) {
      let text = '';
      socket.on('data', (chunk) => {
        text = this.#read(index, text + chunk);
      });
    }
  }

  call(key: string, owner: string, ttlMs: number): Promise<boolean> {
    return new Promise((decide) => {
      if (this.#calls.length === 0) setImmediate(() => this.#send());
      this.#calls.push({ key, owner, ttlMs, decide, yes: 0, no: 0 });
    });
  }

  #send(): void {
    const calls = this.#calls;
    this.#calls = [];
    const values = calls.flatMap(({ owner, ttlMs }) => [owner, `${ttlMs}`]);
    const keys = calls.map(({ key }) => key);
    const words = ['EVALSHA', this.#hash, `${keys.length}`, ...keys, ...values];
    let command = `*${words.length}\r\n`;
    for (const word of words) command += `$${word.length}\r\n${word}\r\n`;
    for (const [index, socket] of this.#sockets.entries()) {
      this.#unanswered[index]?.push(calls);
      socket.write(command, 'latin1');
    }
  }

  /** @returns the incomplete rest; a reply is `$3\r\n101\r\n` */
  #read(index: number, text: string): string {
    let from = 0;
    for (;;) {
      const lineEnd = text.indexOf('\r\n', from);
      if (lineEnd === -1) return text.slice(from);
      if (text[from] !== '$') throw new Error(`unexpected reply ${text.slice(from, lineEnd)}`);
      const bodyFrom = lineEnd + 2;
      const bodyEnd = bodyFrom + Number(text.slice(from + 1, lineEnd));
      if (text.length < bodyEnd + 2) return text.slice(from);
      for (const [at, call] of (this.#unanswered[index]?.shift() ?? []).entries()) {
        this.#count(call, text[bodyFrom + at] === '1');
      }
      from = bodyEnd + 2;
    }
  }

  #count(call: Call, isYes: boolean): void {
    if (isYes) call.yes += 1;
    else call.no += 1;
    if (call.yes === this.#quorum) call.decide(true);
    else if (call.no > this.#sockets.length - this.#quorum) call.decide(false);
  }
}
