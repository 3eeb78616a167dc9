import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** Time between the signal that asks a program to end, and the kill. */
const GRACE_MS = 5_000;

/**
 * Program of the guardian: a shell that starts with the first child and outlives this process. It
 * reads from a pipe the process groups and folders that belong to this process. The pipe ends when
 * this process ends, for any reason (return, crash, Ctrl-C, kill -9). Then the guardian ends the
 * groups and removes the folders.
 *
 * A process that is stopped (SIGSTOP) handles no signal. So SIGCONT follows the signal to end.
 */
const GUARDIAN = `
trap '' HUP INT TERM
while IFS= read -r line; do
  case $line in
    +*) set -- "$@" "\${line#+}" ;;
    -*) for entry do shift; [ "$entry" = "\${line#-}" ] || set -- "$@" "$entry"; done ;;
  esac
done
each_group() {
  action=$1; shift
  for entry do case $entry in group*) set -- $entry; "$action" "$2" "$3"; esac; done
}
finish() { kill -s "$1" -- "-$2"; kill -s CONT -- "-$2"; }
await() {
  while kill -s 0 -- "-$2" && [ "$tries" -lt ${GRACE_MS / 50} ]; do sleep 0.05 || sleep 1; tries=$((tries + 1)); done
}
destroy() { kill -s KILL -- "-$2"; }
tries=0
each_group finish "$@"
each_group await "$@"
each_group destroy "$@"
for entry do case $entry in folder*) rm -rf -- "\${entry#folder }"; esac; done
`;

/** A child registers its process group before it becomes the program. So it is always guarded. */
const REGISTERED = 'echo "+group $1 $$" >&3; shift; exec "$@" 3>&-';

/** SIGKILL is for programs that end slowly, and whose state is discarded anyway. */
type EndSignal = 'SIGTERM' | 'SIGINT' | 'SIGKILL';

export interface SpawnOptions {
  readonly cwd?: string;
  /** @default the environment of this process */
  readonly env?: NodeJS.ProcessEnv;
  readonly uid?: number;
  readonly gid?: number;
  /** A number is a file descriptor that is open for writing. @default 'pipe' */
  readonly stdout?: 'pipe' | 'ignore' | number;
  /** @default 'pipe' */
  readonly stderr?: 'pipe' | 'ignore' | number;
  /** The signal that asks the program to end. @default 'SIGTERM' */
  readonly endSignal?: EndSignal;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child process that, with its descendants, never outlives this process. */
export interface GuardedProcess extends AsyncDisposable {
  /** Id of the program, and of its process group. */
  readonly pid: number;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  /** Resolves when the program has ended. A program that cannot run ends with 126 or 127. */
  readonly exited: Promise<Exit>;
  /** Sends a signal to the whole process group, unless it has ended. */
  signal(name: NodeJS.Signals): void;
  /**
   * Ends the program, even if it is stopped, and kills it after 5 s. Resolves when it has ended.
   * Idempotent.
   */
  end(): Promise<void>;
  /** Lets this process end while the program runs. The program ends with it. */
  unref(): void;
}

/**
 * Starts a program in a process group of its own, which a terminal's Ctrl-C does not reach.
 *
 * @throws if no process can be started, for instance because `cwd` does not exist
 */
export async function spawnGuarded(
  command: string,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<GuardedProcess> {
  const { stdout = 'pipe', stderr = 'pipe', endSignal = 'SIGTERM', ...rest } = options;
  const signalName = endSignal.slice('SIG'.length);
  const child = spawn('/bin/sh', ['-c', REGISTERED, 'sh', signalName, command, ...args], {
    ...rest,
    detached: true,
    stdio: ['ignore', stdout, stderr, guardianPipe()],
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await once(child, 'spawn');
  const pid = idOf(child);
  let over = false;
  const ended = exited.then(() => {
    // Kills the program's own children. Afterwards, the system may reuse the id of the group.
    signalGroup(pid, 'SIGKILL');
    over = true;
    write(`-group ${signalName} ${pid}`);
  });
  const signal = (name: NodeJS.Signals) => {
    if (!over) signalGroup(pid, name);
  };
  const end = async () => {
    signal(endSignal);
    signal('SIGCONT');
    const killer = setTimeout(signal, GRACE_MS, 'SIGKILL');
    await ended;
    clearTimeout(killer);
  };
  return {
    pid,
    stdout: child.stdout,
    stderr: child.stderr,
    exited,
    signal,
    end,
    unref: () => child.unref(),
    [Symbol.asyncDispose]: end,
  };
}

/** Makes a process group that another process has started end with this process. */
export function guardGroup(pid: number): void {
  write(`+group TERM ${pid}`);
}

/** A new folder that is removed by `remove` or at the end of this process. */
export interface TemporaryFolder extends AsyncDisposable {
  readonly path: string;
  remove(): Promise<void>;
}

export async function makeTemporaryFolder(
  name: string,
  parent: string = tmpdir(),
): Promise<TemporaryFolder> {
  const path = join(parent, `fenced-${name}-${randomUUID()}`);
  write(`+folder ${path}`);
  await mkdir(path, { mode: 0o700 });
  const remove = async () => {
    await rm(path, { recursive: true, force: true });
    write(`-folder ${path}`);
  };
  return { path, remove, [Symbol.asyncDispose]: remove };
}

let guardian: Writable | undefined;

/** Returns the pipe to the guardian. The system closes it when this process ends. */
function guardianPipe(): Writable {
  if (guardian === undefined) {
    const child = spawn('/bin/sh', ['-c', GUARDIAN], {
      cwd: '/',
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    child.unref();
    if (child.stdin instanceof Socket) child.stdin.unref();
    guardian = child.stdin;
  }
  return guardian;
}

function write(line: string): void {
  guardianPipe().write(`${line}\n`);
}

function idOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('a spawned process has an id');
  return child.pid;
}

/** Does nothing if the group has ended. */
export function signalGroup(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(-pid, name);
  } catch (error) {
    // The group has ended already, which every caller accepts.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
