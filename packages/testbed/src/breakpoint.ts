import { readFile, realpath } from 'node:fs/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';

/**
 * A statement of a JavaScript program: the one that begins with `text`, which occurs in `file`
 * once. For compiled TypeScript, `file` is the compiled file.
 */
export interface Place {
  readonly file: URL | string;
  readonly text: string;
}

/** The debugger cannot stop at the place, or does not answer. The caller must correct the place. */
export class BreakpointError extends Error {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A place as the debugger's protocol expects it: lines and columns count from 0. */
export interface Location {
  readonly url: string;
  readonly lineNumber: number;
  readonly columnNumber: number;
}

/**
 * @throws {BreakpointError} if the file cannot be read, or `text` does not occur in it exactly once
 */
export async function locate({ file, text }: Place): Promise<Location> {
  const named = String(file).startsWith('file:') ? fileURLToPath(file) : String(file);
  try {
    // Node identifies a module by its real path, also behind a workspace's symbolic link.
    const path = await realpath(named);
    const [before = '', after, ...more] = (await readFile(path, 'utf8')).split(text);
    if (after === undefined || more.length > 0) {
      const times = after === undefined ? 0 : more.length + 1;
      throw new BreakpointError(
        `the text of a breakpoint must occur in its file exactly once: file=${path} text=${JSON.stringify(text)} times=${times}`,
      );
    }
    const lines = before.split('\n');
    return {
      url: pathToFileURL(path).href,
      lineNumber: lines.length - 1,
      columnNumber: lines.at(-1)?.length ?? 0,
    };
  } catch (cause) {
    if (cause instanceof BreakpointError) throw cause;
    throw new BreakpointError(`the file of a breakpoint cannot be read: file=${named}`, { cause });
  }
}

/**
 * Holds another Node program when it first reaches a location. The program's source needs no
 * change. The program must wait for a debugger (`--inspect-wait`), so that the breakpoint is set
 * before its first line runs.
 *
 * Protocol: https://chromedevtools.github.io/devtools-protocol/v8/Debugger/ and Node's
 * `NodeRuntime`.
 */
export class Breakpoint {
  /**
   * Resolves when V8 has paused at the location. Rejects if no statement begins there. Else stays
   * pending.
   */
  readonly reached: Promise<void>;
  readonly #session: Session;
  #isHolding = false;

  /** Sets the breakpoint in the program that listens at `inspectorUrl`, and lets it start. */
  static async set(inspectorUrl: string, location: Location): Promise<Breakpoint> {
    const session = await Session.open(inspectorUrl);
    const breakpoint = new Breakpoint(session, location);
    // Node accepts a debugger before it waits for one. It ignores a command to run that comes in
    // between, and then waits for ever. So the command is sent at this event:
    // https://github.com/nodejs/node/pull/51560
    session.on('NodeRuntime.waitingForDebugger', () =>
      session.post('Runtime.runIfWaitingForDebugger'),
    );
    // At its end, a program waits until its debugger disconnects.
    session.on('NodeRuntime.waitingForDisconnect', () => session.close());
    await Promise.all([
      session.send('Debugger.enable'),
      session.send('Debugger.setBreakpointByUrl', { ...location }),
      session.send('NodeRuntime.notifyWhenWaitingForDisconnect', { enabled: true }),
      session.send('NodeRuntime.enable'),
    ]);
    return breakpoint;
  }

  private constructor(session: Session, location: Location) {
    this.#session = session;
    this.reached = new Promise((resolve, reject) => {
      session.on('Debugger.breakpointResolved', ({ location: found }) => {
        // If no statement begins here, V8 moves the breakpoint to the next one. A stop there would
        // prove something else.
        if (found?.lineNumber === location.lineNumber) return;
        session.close();
        reject(
          new BreakpointError(
            `no statement begins at the breakpoint: url=${location.url} line=${location.lineNumber + 1}`,
          ),
        );
      });
      session.on('Debugger.paused', ({ hitBreakpoints }) => {
        // Without a hit breakpoint, a `debugger` statement of the program caused the pause.
        this.#isHolding = hitBreakpoints !== undefined && hitBreakpoints.length > 0;
        if (this.#isHolding) resolve();
        else session.post('Debugger.resume');
      });
    });
    // Without a waiter, the rejection must not end this process.
    this.reached.catch(() => undefined);
  }

  /**
   * Continues a held program and removes the breakpoint. Does nothing if the program is not held.
   * V8 resumes when its debugger disconnects. A process that is stopped by SIGSTOP does so when it
   * wakes.
   */
  pass(): void {
    if (this.#isHolding) this.#session.close();
  }
}

/** The used parts of the protocol's events. */
interface EventParams {
  readonly location?: { readonly lineNumber: number };
  readonly hitBreakpoints?: readonly string[];
}

interface Message {
  readonly id?: number;
  readonly error?: { readonly message: string };
  readonly method?: string;
  readonly params?: EventParams;
}

type OnReply = (refusal: string | undefined) => void;

/** A connection to a program's inspector: numbered commands out, replies and events in. */
class Session {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, OnReply>();
  readonly #listeners = new Map<string, (params: EventParams) => void>();
  #commands = 0;

  static open(url: string): Promise<Session> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url);
      const session = new Session(socket);
      socket.addEventListener('open', () => resolve(session));
      // `close` also follows a failed connection.
      socket.addEventListener('close', () => {
        session.#closed();
        reject(new BreakpointError(`cannot connect to the inspector: url=${url}`));
      });
    });
  }

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#receive(JSON.parse(String(data))));
  }

  on(event: string, listener: (params: EventParams) => void): void {
    this.#listeners.set(event, listener);
  }

  send(method: string, params: object = {}): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.set(this.post(method, params), (refusal) => {
        if (refusal === undefined) resolve();
        else reject(new BreakpointError(`the debugger refused ${method}: ${refusal}`));
      });
    });
  }

  /** Sends a command without waiting for the reply. Returns its number. */
  post(method: string, params: object = {}): number {
    this.#commands += 1;
    this.#socket.send(JSON.stringify({ id: this.#commands, method, params }));
    return this.#commands;
  }

  close(): void {
    this.#socket.close();
  }

  #receive(message: Message): void {
    if (message.id !== undefined) {
      this.#waiting.get(message.id)?.(message.error?.message);
      this.#waiting.delete(message.id);
    } else if (message.method !== undefined) {
      this.#listeners.get(message.method)?.(message.params ?? {});
    }
  }

  #closed(): void {
    for (const onReply of this.#waiting.values()) onReply('the connection was closed');
    this.#waiting.clear();
  }
}
