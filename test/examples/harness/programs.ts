import { readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseEnv } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import { FencedS3 } from '@fenced/store/s3';
import { WorkerProcess } from '@fenced/testbed';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const SERVE = join(ROOT, 'packages/testbed/dist/serve.js');

/** Servers, started as by `npm run servers -- FILE`, and the settings in that file. */
export class Servers implements AsyncDisposable {
  /** The variables of the file: the addresses of the servers. */
  readonly env: Readonly<Record<string, string>>;
  readonly #process: WorkerProcess;

  static async start(): Promise<Servers> {
    const file = join(tmpdir(), `examples-${process.pid}-${performance.now()}.env`);
    const { promise: running, resolve } = Promise.withResolvers<void>();
    const onLine = (line: string): void => void (line.includes('run.') && resolve());
    const process_ = await WorkerProcess.start(SERVE, { args: [file], onLine });
    await running;
    const env = parseEnv(await readFile(file, 'utf8')) as Record<string, string>;
    await rm(file);
    return new Servers(env, process_);
  }

  private constructor(env: Readonly<Record<string, string>>, process: WorkerProcess) {
    this.env = env;
    this.#process = process;
  }

  /** The bucket. */
  documents(): Disposable & { readonly store: FencedS3 } {
    const { AWS_ENDPOINT_URL_S3: endpoint = '', AWS_REGION: region = '', BUCKET = '' } = this.env;
    const { AWS_ACCESS_KEY_ID = '', AWS_SECRET_ACCESS_KEY = '' } = this.env;
    const client = new S3Client({
      endpoint,
      region,
      credentials: { accessKeyId: AWS_ACCESS_KEY_ID, secretAccessKey: AWS_SECRET_ACCESS_KEY },
    });
    const store = new FencedS3({ client, bucket: BUCKET });
    return { store, [Symbol.dispose]: () => client.destroy() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.kill('SIGINT');
  }
}

export interface ProgramOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The statement at which the program is held, by its first words. */
  readonly stopAt?: string;
}

/** The main file of an example, in a process of its own. */
export class Program implements AsyncDisposable {
  readonly process: WorkerProcess;
  readonly lines: string[];

  /** @param path below `examples/` */
  static async start(
    path: string,
    { args = [], env = {}, stopAt }: ProgramOptions,
  ): Promise<Program> {
    const file = join(ROOT, 'examples', path);
    const lines: string[] = [];
    const process = await WorkerProcess.start(file, {
      args,
      env,
      onLine: (line: string) => void lines.push(line),
      ...(stopAt !== undefined && { stopAt: { file, text: stopAt } }),
    });
    return new Program(process, lines);
  }

  private constructor(process: WorkerProcess, lines: string[]) {
    this.process = process;
    this.lines = lines;
  }

  /**
   * Resolves when the program has printed `times` such lines. Only the time limit of the test
   * limits the wait.
   *
   * @returns the last one of these lines
   */
  async printed(wanted: string | RegExp, times = 1): Promise<string> {
    const ended = this.process.exited.then(() => {
      throw new Error(`it ended without "${wanted}": ${this.lines} ${this.process.stderr}`);
    });
    // If the program ends after the line, this rejects, and nothing else handles the rejection.
    ended.catch(() => undefined);
    const found = () =>
      this.lines.filter((line) =>
        typeof wanted === 'string' ? line === wanted : wanted.test(line),
      );
    while (found().length < times) await Promise.race([sleep(5), ended]);
    return found().at(-1) ?? '';
  }

  /** @returns its output. @throws if its exit code is not 0 */
  async output(): Promise<string[]> {
    const { code } = await this.process.exited;
    if (code !== 0)
      throw new Error(`it ended with ${code}: ${this.lines.join('\n')}\n${this.process.stderr}`);
    return this.lines;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process.kill();
  }
}

/** Runs a program to its end, and returns its output. */
export async function run(path: string, options: ProgramOptions): Promise<string[]> {
  await using program = await Program.start(path, options);
  return await program.output();
}

/** Starts a program and stops its process (SIGSTOP) before a statement. */
export async function startPaused(
  path: string,
  options: ProgramOptions & { readonly stopAt: string },
): Promise<Program> {
  const program = await Program.start(path, options);
  await program.process.reachedStop();
  await program.process.pause();
  return program;
}

/** Continues a paused program, and returns its output. */
export async function wake(program: Program): Promise<string[]> {
  await program.process.wake();
  return await program.output();
}
