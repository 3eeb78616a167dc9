import { readFile, realpath } from 'node:fs/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';

/**
 * A place in a JavaScript program as it runs: the statement that begins with `text`, which stands in `file` exactly once.
 * For TypeScript that was compiled it is a place in the compiled file.
 */
export interface Place {
  readonly file: URL | string;
  readonly text: string;
}

/** The place cannot be stopped at, or the debugger cannot be spoken to. The caller must mend the place it asked for. */
export class BreakpointError extends Error {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Where V8 is told to stop. Lines and columns count from 0, as the protocol counts them. */
export interface Location {
  readonly url: string;
  readonly lineNumber: number;
  readonly columnNumber: number;
}

/** @throws {BreakpointError} where the file cannot be read, or `text` does not stand in it exactly once. */
export async function locate({ file, text }: Place): Promise<Location> {
  const named = String(file).startsWith('file:') ? fileURLToPath(file) : String(file);
  try {
    // Node names a module by its real path, also where it was imported through a workspace's symbolic link.
    const path = await realpath(named);
    const [before = '', after, ...more] = (await readFile(path, 'utf8')).split(text);
    if (after === undefined || more.length > 0) {
      const times = after === undefined ? 0 : more.length + 1;
      throw new BreakpointError(
        `the text of a breakpoint must stand in its file exactly once file=${path} text=${JSON.stringify(text)} times=${times}`,
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
    throw new BreakpointError(`the file of a breakpoint cannot be read file=${named}`, { cause });
  }
}

/**
 * Stops another Node program where it first comes to a location, from outside: nothing in its source knows of it.
 * The program must wait for a debugger (`--inspect-wait`), so that the breakpoint is set before its first line runs.
 *
 * Protocol: https://chromedevtools.github.io/devtools-protocol/v8/Debugger/ and, for the end, Node's own `NodeRuntime`.
 */
export class Breakpoint {
  /** Resolves when V8 has paused there; rejects where V8 finds no statement there. Pending if it never comes to it. */
  readonly reached: Promise<void>;
  readonly #session: Session;
  #isHolding = false;

  /** Sets the breakpoint in the program that listens at `inspectorUrl`, and lets it start. */
  static async set(inspectorUrl: string, location: Location): Promise<Breakpoint> {
    const session = await Session.open(inspectorUrl);
    const breakpoint = new Breakpoint(session, location);
    // Node listens before it waits: told to run in between, it takes no notice and then waits for ever.
    // Its event for this: https://github.com/nodejs/node/pull/51560
    session.on('NodeRuntime.waitingForDebugger', () =>
      session.post('Runtime.runIfWaitingForDebugger'),
    );
    // A program that comes to its end says so and waits for its debugger to leave: it would never exit.
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
        // V8 slides to the next statement where none begins here; stopping there would prove something else.
        if (found?.lineNumber === location.lineNumber) return;
        session.close();
        reject(
          new BreakpointError(
            `no statement begins where the breakpoint is asked for url=${location.url} line=${location.lineNumber + 1}`,
          ),
        );
      });
      session.on('Debugger.paused', ({ hitBreakpoints }) => {
        // Else it is a `debugger` statement of the program, which means nothing to us.
        this.#isHolding = hitBreakpoints !== undefined && hitBreakpoints.length > 0;
        if (this.#isHolding) resolve();
        else session.post('Debugger.resume');
      });
    });
    // Whoever does not wait for the breakpoint is not to be ended by its rejection.
    this.reached.catch(() => undefined);
  }

  /**
   * Lets a program that is held here go on, and forgets the breakpoint; does nothing before that.
   * Leaving is all it takes: V8 resumes when its debugger disconnects, a stopped process as soon as it is awake.
   */
  pass(): void {
    if (this.#isHolding) this.#session.close();
  }
}

/** The parts of the protocol's events that are read here. */
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

type Settle = (refusal: string | undefined) => void;

/** A connection to a program's inspector: numbered commands out, replies and events in. */
class Session {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, Settle>();
  readonly #listeners = new Map<string, (params: EventParams) => void>();
  #commands = 0;

  static open(url: string): Promise<Session> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url);
      const session = new Session(socket);
      socket.addEventListener('open', () => resolve(session));
      // `close` also follows a connection that could not be made.
      socket.addEventListener('close', () => {
        session.#closed();
        reject(new BreakpointError(`the inspector cannot be connected to url=${url}`));
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

  /** Sends a command whose reply makes no difference. Returns its number. */
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
    for (const settle of this.#waiting.values()) settle('the connection was closed');
    this.#waiting.clear();
  }
}
