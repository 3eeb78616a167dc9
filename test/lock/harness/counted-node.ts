import { type IoredisClient, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis } from '@fenced/testbed';
import type { Redis } from 'ioredis';
import { connect } from './world.js';

/** The cost of one script. */
export interface Cost {
  readonly keys: number;
  /** The commands that the node ran inside the script. */
  readonly commands: number;
}

/** A program whose scripts are counted. */
export interface Program {
  readonly lock: Redlock;
  /** From now on, the requests of the program do not arrive. */
  readonly silence: () => void;
}

/** Commands that the measurement itself runs beside the script. */
const OWN = /^(?:evalsha|eval|info|config\|resetstat|config|client.*|ping|hello)$/;

/** One real node that runs one script at a time. Counts the commands that each script runs. */
export class CountedNode implements AsyncDisposable {
  readonly admin: Redis;
  readonly costs: Cost[] = [];
  readonly #service: LocalRedisService;
  readonly #stack = new AsyncDisposableStack();
  #last: Promise<unknown> = Promise.resolve();

  static async start(): Promise<CountedNode> {
    const service = await startLocalRedis(1);
    return new CountedNode(service);
  }

  private constructor(service: LocalRedisService) {
    this.#service = service;
    this.#stack.use(service);
    this.admin = this.#connect();
  }

  program(): Program {
    const redis = this.#connect();
    let isSilent = false;
    const run = (name: 'evalsha' | 'eval', args: readonly (string | number)[]): Promise<unknown> =>
      isSilent ? new Promise(() => {}) : this.#count(redis, name, args);
    const client: IoredisClient = {
      isCluster: false,
      evalsha: (...args) => run('evalsha', args),
      eval: (...args) => run('eval', args),
      duplicate: () => redis.duplicate(),
    };
    const lock = this.#stack.use(new Redlock({ nodes: [{ name: 'n', client }] }));
    const silence = (): void => {
      isSilent = true;
    };
    return { lock, silence };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  #connect(): Redis {
    const port = this.#service.nodes[0]?.port ?? 0;
    return this.#stack.adopt(connect(port), (client) => client.disconnect());
  }

  #count(
    client: Redis,
    name: 'evalsha' | 'eval',
    args: readonly (string | number)[],
  ): Promise<unknown> {
    const counted = this.#last.then(async () => {
      const pipeline = client.pipeline().config('RESETSTAT');
      pipeline.call(name, ...args);
      const [, script, stats] = (await pipeline.info('commandstats').exec()) ?? [];
      const [failure, reply] = script ?? [new Error('not sent')];
      if (failure) throw failure;
      this.costs.push({ keys: Number(args[1]), commands: commandsIn(String(stats?.[1])) });
      return reply;
    });
    this.#last = counted.catch(() => {});
    return counted;
  }
}

function commandsIn(stats: string): number {
  let commands = 0;
  for (const [, name = '', calls] of stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (!OWN.test(name)) commands += Number(calls);
  }
  return commands;
}
