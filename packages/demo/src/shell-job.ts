import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { groupStartedBy, type StartedGroup, WorkerProcess } from '@fenced/testbed';
import type { Job } from './job.js';

const FENCED = fileURLToPath(new URL('../../fenced/bin/fenced.js', import.meta.url));
const DOCUMENT = fileURLToPath(new URL('./shell-document.js', import.meta.url));

/** The job: it reads, waits for a report that takes long, and writes. */
const SCRIPT = `set -e
document() { "$NODE" "$DOCUMENT" "$@"; }
document read "$FOLDER/lines"
read -r _ <"$FOLDER/report"
document write "$FOLDER/lines"`;

/** A shell job under `fenced run`. */
export class ShellJob implements AsyncDisposable {
  /** `fenced run`. */
  readonly process: WorkerProcess;
  readonly #folder: string;
  /** Open for reading and writing, so that neither side waits for the other to open it. */
  readonly #report: FileHandle;
  /** The guard and the job, each a group of its own. */
  #groups: readonly StartedGroup[] = [];

  static async start(job: Job, onLine: (line: string) => void): Promise<ShellJob> {
    const folder = await mkdtemp(join(tmpdir(), 'fenced-job-'));
    await promisify(execFile)('mkfifo', [join(folder, 'report')]);
    const report = await open(join(folder, 'report'), constants.O_RDWR);
    const { nodes, keyPrefix } = job.lock;
    const lock = nodes.flatMap(({ name, url }) => ['--redis', `${name}=${url}`]);
    const times = ['--ttl', `${job.ttlMs}ms`, '--wait', `${job.waitMs}ms`];
    const process_ = await WorkerProcess.start(FENCED, {
      args: [
        ...['run', '--lock', job.resource, ...times, ...lock, '--key-prefix', keyPrefix],
        ...['--', 'sh', '-c', SCRIPT],
      ],
      env: { NODE: process.execPath, DOCUMENT, FOLDER: folder, JOB: JSON.stringify(job) },
      onLine,
    });
    return new ShellJob(process_, folder, report);
  }

  private constructor(process: WorkerProcess, folder: string, report: FileHandle) {
    this.process = process;
    this.#folder = folder;
    this.#report = report;
  }

  /** Lets the job go on to its write. */
  async deliverReport(): Promise<void> {
    await this.#report.write('ready\n');
  }

  /** Stops `fenced run`, its guard and the job. */
  async pause(): Promise<void> {
    const guard = await groupStartedBy(this.process.pid);
    this.#groups = [guard, await groupStartedBy(guard.pid)];
    for (const part of [this.process, ...this.#groups]) await part.pause();
  }

  /** Continues the job, and the other two after `written`. */
  async wake(written: Promise<unknown>): Promise<void> {
    const [guard, job] = this.#groups;
    job?.wake();
    await Promise.race([written, this.process.exited]);
    guard?.wake();
    await this.process.wake();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const group of this.#groups) group.wake();
    await this.process.kill();
    await this.#report.close();
    await rm(this.#folder, { recursive: true });
  }
}
