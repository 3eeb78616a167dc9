import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { type FileHandle, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { groupStartedBy, type StartedGroup, startedGroup, WorkerProcess } from '@fenced/testbed';
import type { History, Lane, Operation } from './history.js';
import type { Job } from './job.js';
import { until } from './until.js';

const FENCED = fileURLToPath(new URL('../../fenced/bin/fenced.js', import.meta.url));
const DOCUMENT = fileURLToPath(new URL('./shell-document.js', import.meta.url));

/** The job: it reads, waits for a report that takes long, and writes. */
const SCRIPT = `set -e
echo $$ >"$FOLDER/pid"
document() { "$NODE" "$DOCUMENT" "$@"; }
document read "$FOLDER/lines"
read -r _ <"$FOLDER/report"
document write "$FOLDER/lines"`;

interface Parts {
  readonly process: WorkerProcess;
  readonly folder: string;
  /** Open for reading and writing, so that neither side waits for the other to open it. */
  readonly report: FileHandle;
  /** Returns true if the job has ended an operation of this kind. */
  readonly has: (operation: Operation) => boolean;
}

/** A shell job under `fenced run`. */
export class ShellJob implements AsyncDisposable {
  /** `fenced run`. */
  readonly process: WorkerProcess;
  readonly #parts: Parts;
  /** The guard and the job, each a group of its own. */
  #groups: readonly StartedGroup[] = [];

  static async start(job: Job, history: History, name: Lane): Promise<ShellJob> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-job-'));
    await promisify(execFile)('mkfifo', [join(folder, 'report')]);
    const report = await open(join(folder, 'report'), constants.O_RDWR);
    const { nodes, keyPrefix } = job.lock;
    const lock = nodes.flatMap(({ name, url }) => ['--redis', `${name}=${url}`]);
    const times = ['--ttl', `${job.ttlMs}ms`, '--wait', `${job.waitMs}ms`];
    history.record({ actor: name, operation: 'acquire', phase: 'invoke' });
    const process_ = await WorkerProcess.start(FENCED, {
      args: [
        ...['run', '--lock', job.resource, ...times, ...lock, '--key-prefix', keyPrefix],
        ...['--', 'sh', '-c', SCRIPT],
      ],
      env: { NODE: process.execPath, DOCUMENT, FOLDER: folder, JOB: JSON.stringify(job) },
      onLine: (line) => history.record({ actor: name, ...JSON.parse(line) }),
    });
    const has = (wanted: Operation): boolean =>
      history.events.some(
        ({ actor, operation, phase }) =>
          actor === name && operation === wanted && phase !== 'invoke',
      );
    return new ShellJob({ process: process_, folder, report, has });
  }

  private constructor(parts: Parts) {
    this.process = parts.process;
    this.#parts = parts;
  }

  /** Resolves when the job has read the document. It then waits for `deliverReport`. */
  reachedWrite(): Promise<void> {
    return until('the job has read', async () => this.#parts.has('read'));
  }

  /** Delivers the report that the job waits for. The job then writes. */
  async deliverReport(): Promise<void> {
    await this.#parts.report.write('ready\n');
  }

  /** Stops `fenced run`, its guard and the job. */
  async pause(): Promise<void> {
    const guard = await groupStartedBy(this.process.pid);
    const job = await readFile(join(this.#parts.folder, 'pid'), 'utf8');
    this.#groups = [guard, startedGroup(Number(job))];
    for (const part of [this.process, ...this.#groups]) await part.pause();
  }

  /** Continues the job. When the job has written, continues the guard and `fenced run`. */
  async wake(): Promise<void> {
    await this.deliverReport();
    const [guard, job] = this.#groups;
    job?.wake();
    await until('the job has written', async () => this.#parts.has('write'));
    guard?.wake();
    await this.process.wake();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const group of this.#groups) group.wake();
    await this.process.kill();
    await this.#parts.report.close();
    await rm(this.#parts.folder, { recursive: true });
  }
}
