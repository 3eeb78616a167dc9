import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** How long a program may take to end by itself once asked, before it is killed. */
const GRACE_MS = 5_000;

/**
 * One guardian per process, started with the first child. It reads from a pipe which process groups and folders are
 * ours. At end of file, however we ended (return, crash, Ctrl-C, kill -9), it ends the groups and removes the folders.
 *
 * A stopped process cannot act on a signal, so it is sent SIGCONT after the other signal: the pending one comes first.
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

/** A child registers its own process group before it becomes the program, so there is no moment without a guardian. */
const REGISTERED = 'echo "+group $1 $$" >&3; shift; exec "$@" 3>&-';

/** SIGKILL is for programs whose whole state is thrown away with them and that are slow to end in order. */
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
  /** The signal that asks the program to end in order. @default 'SIGTERM' */
  readonly endSignal?: EndSignal;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child process, with its descendants, that never outlives this process. */
export interface GuardedProcess extends AsyncDisposable {
  /** Of the program itself; also the id of its process group. */
  readonly pid: number;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  /** Resolves when the program has ended, for whatever reason. A program that cannot be executed ends with 126 or 127. */
  readonly exited: Promise<Exit>;
  /** Sends to the whole process group; does nothing where it has ended. */
  signal(name: NodeJS.Signals): void;
  /** Asks it to end, stopped or not, kills it after 5 s, and resolves when it has ended. Idempotent. */
  end(): Promise<void>;
  /** This process may end while the program runs; it is ended then. */
  unref(): void;
}

/**
 * Starts a program in its own process group (a terminal's Ctrl-C reaches us first, not it) under the guardian.
 *
 * @throws where no process can be started at all, for instance where `cwd` does not exist.
 */
export async function spawnWithLifeline(
  command: string,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<GuardedProcess> {
  const { stdout = 'pipe', stderr = 'pipe', endSignal = 'SIGTERM', ...rest } = options;
  const signalName = endSignal.slice('SIG'.length);
  const child = spawn('/bin/sh', ['-c', REGISTERED, 'sh', signalName, command, ...args], {
    ...rest,
    detached: true,
    stdio: ['ignore', stdout, stderr, lifeline()],
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await once(child, 'spawn');
  const pid = idOf(child);
  let over = false;
  const ended = exited.then(() => {
    // What the program itself started and left behind. After this the number may soon be somebody else's.
    signalGroup(pid, 'SIGKILL');
    over = true;
    tell(`-group ${signalName} ${pid}`);
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

/** A new folder that is removed on `remove`, or however this process ends. */
export interface TemporaryFolder extends AsyncDisposable {
  readonly path: string;
  remove(): Promise<void>;
}

export async function makeTemporaryFolder(
  name: string,
  parent: string = tmpdir(),
): Promise<TemporaryFolder> {
  const path = join(parent, `fenced-${name}-${randomUUID()}`);
  tell(`+folder ${path}`);
  await mkdir(path, { mode: 0o700 });
  const remove = async () => {
    await rm(path, { recursive: true, force: true });
    tell(`-folder ${path}`);
  };
  return { path, remove, [Symbol.asyncDispose]: remove };
}

let guardian: Writable | undefined;

/** The pipe to the guardian, which holds its other end open for as long as this process lives and no longer. */
function lifeline(): Writable {
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

function tell(line: string): void {
  lifeline().write(`${line}\n`);
}

function idOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('a spawned process has an id');
  return child.pid;
}

function signalGroup(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(-pid, name);
  } catch (error) {
    // The group has ended, which is what every caller is content with.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
