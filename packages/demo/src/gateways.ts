import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { type Place, WorkerProcess } from '@fenced/testbed';
import type { Job, LockAddress, StoreAddress, StoreKind } from './job.js';
import type { ClientNumber } from './lock-network.js';
import { until } from './until.js';

const COMMAND = fileURLToPath(new URL('../../fenced/bin/fenced.js', import.meta.url));

/**
 * Gateway A stops before this statement. It has accepted a write by then, and has sent nothing of
 * it to the store.
 */
const BEFORE_WRITE: Readonly<Record<StoreKind, Place>> = {
  s3: {
    file: new URL('./write/writer.js', import.meta.resolve('@fenced/store/s3')),
    text: 'const result = await this.#send(',
  },
  postgres: {
    file: new URL('./records.js', import.meta.resolve('@fenced/store/postgres')),
    text: 'const writeId = this.#runtime.uniqueId();',
  },
};

interface Gateway {
  readonly process: WorkerProcess;
  readonly url: string;
}

/** Two gateways on the same lock nodes and store: A for client 1, B for client 2. */
export class Gateways implements AsyncDisposable {
  /** Gateway A, which stops before its first write. */
  readonly a: WorkerProcess;
  readonly #urls: Readonly<Record<ClientNumber, string>>;
  readonly #b: WorkerProcess;
  readonly #lock: LockAddress;
  readonly #document: StoreAddress;

  /** @param resource the resource whose lease guards the document */
  static async start(
    lock: LockAddress,
    document: StoreAddress,
    resource: string,
  ): Promise<Gateways> {
    const env = configuration(lock, document, resource);
    const [a, b] = await Promise.all([start(env, BEFORE_WRITE[document.kind]), start(env)]);
    return new Gateways(a, b, lock, document);
  }

  private constructor(a: Gateway, b: Gateway, lock: LockAddress, document: StoreAddress) {
    this.a = a.process;
    this.#b = b.process;
    this.#urls = { 1: a.url, 2: b.url };
    this.#lock = lock;
    this.#document = document;
  }

  /** The client's addresses of the lock and the document. */
  addresses(client: ClientNumber): Pick<Job, 'lock' | 'storage'> {
    const url = this.#urls[client];
    const { kind: behind } = this.#document;
    const name = this.#document.kind === 's3' ? this.#document.key : this.#document.id;
    return {
      lock: { ...this.#lock, nodes: [], gateway: url },
      storage: { kind: 'gateway', url, behind, name },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.a.kill(), this.#b.kill()]);
  }
}

async function start(env: Readonly<Record<string, string>>, stopAt?: Place): Promise<Gateway> {
  const { promise: listening, resolve } = Promise.withResolvers<string>();
  const log: string[] = [];
  const process = await WorkerProcess.start(COMMAND, {
    ...(stopAt && { stopAt }),
    args: ['gateway'],
    env,
    onLine(line) {
      log.push(line);
      const { msg, url } = JSON.parse(line);
      if (msg === 'listening') resolve(url);
    },
  });
  const ended = process.exited.then(() => {
    throw new Error(`the gateway ended: ${log.join('\n')} ${process.stderr}`);
  });
  const url = await Promise.race([listening, ended]);
  await until('the gateway is ready', async () => (await fetch(`${url}/readyz`)).ok);
  return { process, url };
}

/** The gateway's configuration as environment variables. */
function configuration(
  { nodes, keyPrefix }: LockAddress,
  document: StoreAddress,
  resource: string,
): Record<string, string> {
  const store =
    document.kind === 'postgres'
      ? { RECORDS_URL: document.url }
      : {
          OBJECTS_BUCKET: document.bucket,
          OBJECTS_ENDPOINT: document.endpoint,
          OBJECTS_REGION: document.region,
          OBJECTS_FORCE_PATH_STYLE: 'true',
          OBJECTS_ACCESS_KEY_ID: document.accessKeyId,
          OBJECTS_SECRET_ACCESS_KEY: document.secretAccessKey,
        };
  const fields = {
    LISTEN_PORT: '0',
    REDIS_NODES: JSON.stringify(nodes.map(({ name, url }) => ({ name, url }))),
    REDIS_KEY_PREFIX: keyPrefix,
    SIGNING_KEYS: JSON.stringify([{ id: 'demo', secret: randomBytes(32).toString('base64') }]),
    BINDINGS: JSON.stringify(['objects/*', 'records/*'].map((keys) => ({ keys, lease: resource }))),
    ...store,
  };
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [`FENCED_GATEWAY_${name}`, value]),
  );
}
