import { createConnection, isIP, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectSecurely } from 'node:tls';
import { afterReading, type Runtime } from '../../runtime/runtime.js';
import {
  CODE,
  ConnectionLostError,
  ProtocolError,
  SESSION_CODES,
  ZooKeeperError,
} from './errors.js';
import { Frames } from './frames.js';
import { JuteReader, JuteWriter } from './jute.js';
import type { Operation } from './operations.js';

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

/** A session, as a client presents it to a server. */
export interface SessionState {
  /** 0n asks for a new one. */
  readonly id: bigint;
  readonly password: Uint8Array;
  /** Milliseconds of silence after which the servers end it. */
  readonly timeoutMs: number;
  /** The latest transaction that the client has seen. A server without it refuses the client. */
  readonly zxid: bigint;
}

/** Credentials, such as `digest` and `user:password`. */
export interface Credentials {
  readonly scheme: string;
  readonly auth: string;
}

/** The ways in which a connection protects and identifies itself. */
export interface Access {
  readonly credentials: readonly Credentials[];
  /** Undefined for a connection without TLS. */
  readonly tls?: ConnectionOptions | undefined;
}

export interface ConnectionListener {
  onSession(session: Omit<SessionState, 'zxid'>): void;
  onZxid(zxid: bigint): void;
  /** A watch of this path has fired. */
  onWatch(path: string): void;
  /** Called once, after the requests without a reply were rejected. */
  onClose(cause: Error): void;
}

/** Request numbers with a fixed meaning. All other requests are counted. */
const XID_WATCH = -1;
const XID_PING = -2;
const XID_AUTH = -4;

/** A server that was silent for less counts as busy, and not as lost. */
const SILENT_MIN_MS = 500;

const TYPE_PING = 11;
const TYPE_AUTH = 100;
const TYPE_CLOSE = -11;

interface Pending {
  readonly xid: number;
  readonly sentMs: number;
  reply(reader: JuteReader, code: number): void;
  lost(error: Error): void;
}

/** One connection to one server, from the handshake on. Replies come in the order of requests. */
export class Connection {
  readonly #socket: Socket;
  readonly #runtime: Runtime;
  readonly #listener: ConnectionListener;
  readonly #frames = new Frames();
  readonly #pending: Pending[] = [];
  #xid = 0;
  #isOpen = false;
  #closed: Error | null = null;
  #heardMs: number;
  #cancelTimer: () => void;

  /** @param limitMs for the handshake */
  constructor(
    { host, port }: ServerAddress,
    session: SessionState,
    { credentials, tls }: Access,
    limitMs: number,
    listener: ConnectionListener,
    runtime: Runtime,
  ) {
    this.#runtime = runtime;
    this.#listener = listener;
    this.#heardMs = runtime.nowMs();
    this.#cancelTimer = afterReading(runtime)(limitMs, () =>
      this.close(new Error(`no handshake within ${Math.ceil(limitMs)} ms`)),
    );
    this.#socket = tls
      ? connectSecurely({ host, port, servername: isIP(host) ? '' : host, ...tls })
      : createConnection({ host, port });
    this.#socket.setNoDelay(true);
    this.#socket.on(tls ? 'secureConnect' : 'connect', () => this.#hello(session, credentials));
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.#socket.on('error', (error) => this.close(error));
    this.#socket.on('close', () => this.close(new Error('the server closed the connection')));
  }

  /**
   * Sends a request after the handshake.
   *
   * @throws {ZooKeeperError} the server refused it
   * @throws {ConnectionLostError} no reply came: it may have been carried out
   */
  send<Reply>(operation: Operation<Reply>): Promise<Reply> {
    return this.#request(operation.type, (to) => operation.write(to), operation.read);
  }

  /** Closes the connection if the server has sent nothing since `sinceMs`, for at least 500 ms. */
  suspect(sinceMs: number): void {
    const silentMs = this.#runtime.nowMs() - Math.max(sinceMs, this.#heardMs);
    if (this.#heardMs <= sinceMs && silentMs >= SILENT_MIN_MS) this.close(silence(silentMs));
  }

  /** Ends the session, and its ephemeral nodes with it. */
  async end(): Promise<void> {
    await this.#request(
      TYPE_CLOSE,
      () => undefined,
      () => undefined,
    );
  }

  close(cause: Error): void {
    if (this.#closed) return;
    this.#closed = cause;
    this.#cancelTimer();
    this.#socket.destroy();
    const lost = new ConnectionLostError('the connection to ZooKeeper was lost', { cause });
    for (const pending of this.#pending.splice(0)) pending.lost(lost);
    this.#listener.onClose(cause);
  }

  #request<Reply>(
    type: number,
    write: (to: JuteWriter) => unknown,
    read: (from: JuteReader) => Reply,
  ): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const cause = this.#closed;
      if (cause) return reject(new ConnectionLostError('not connected to ZooKeeper', { cause }));
      this.#xid = (this.#xid + 1) & 0x7fff_ffff;
      const to = new JuteWriter().int(this.#xid).int(type);
      write(to);
      this.#pending.push({
        xid: this.#xid,
        sentMs: this.#runtime.nowMs(),
        reply: (reader, code) => {
          try {
            if (code !== CODE.ok) throw new ZooKeeperError(code);
            resolve(read(reader));
          } catch (error) {
            // A malformed reply closes the connection, and rejects the request.
            if (!(error instanceof ZooKeeperError)) throw error;
            reject(error);
          }
        },
        lost: reject,
      });
      this.#socket.write(to.frame());
    });
  }

  #hello(session: SessionState, credentials: readonly Credentials[]): void {
    const { id, password, timeoutMs, zxid } = session;
    const hello = new JuteWriter().int(0).long(zxid).int(timeoutMs).long(id).bytes(password);
    this.#socket.write(hello.bool(false).frame());
    for (const { scheme, auth } of credentials) {
      const to = new JuteWriter().int(XID_AUTH).int(TYPE_AUTH).int(0).string(scheme).string(auth);
      this.#socket.write(to.frame());
    }
  }

  #read(chunk: Buffer): void {
    this.#heardMs = this.#runtime.nowMs();
    try {
      for (const frame of this.#frames.add(chunk)) {
        if (this.#closed) return;
        const reader = new JuteReader(frame);
        if (this.#isOpen) this.#reply(reader);
        else this.#welcome(reader);
      }
    } catch (error) {
      this.close(error as Error);
    }
  }

  #welcome(reader: JuteReader): void {
    reader.int();
    const timeoutMs = reader.int();
    const id = reader.long();
    const password = Buffer.from(reader.bytes());
    this.#isOpen = true;
    this.#cancelTimer();
    // A timeout of 0 says that the session is over.
    if (timeoutMs > 0) this.#keepAlive(timeoutMs);
    this.#listener.onSession({ id, password, timeoutMs });
  }

  #reply(reader: JuteReader): void {
    const xid = reader.int();
    const zxid = reader.long();
    const code = reader.int();
    if (xid === XID_PING) return;
    if (xid === XID_AUTH) {
      if (code !== CODE.ok) throw new ZooKeeperError(code);
      return;
    }
    if (xid === XID_WATCH) {
      // Skips the kind of the event, and the state of the session.
      for (const _ of [0, 1]) reader.int();
      this.#listener.onWatch(reader.string());
      return;
    }
    const [pending] = this.#pending;
    if (pending?.xid !== xid) {
      throw new ProtocolError(`a reply to another request xid=${xid} expected=${pending?.xid}`);
    }
    // The error closes the connection. The request may succeed on the next connection.
    if (SESSION_CODES.includes(code)) throw new ZooKeeperError(code);
    if (zxid > 0n) this.#listener.onZxid(zxid);
    pending.reply(reader, code);
    this.#pending.shift();
  }

  /**
   * Sends pings, and gives up a server that is silent for half of the session's time. A server that
   * answers pings but no request has lost its leader: it is given up, too.
   */
  #keepAlive(timeoutMs: number): void {
    const tick = (): void => {
      const [oldest] = this.#pending;
      const sinceMs = Math.min(this.#heardMs, oldest?.sentMs ?? Number.POSITIVE_INFINITY);
      const silentMs = this.#runtime.nowMs() - sinceMs;
      if (silentMs >= timeoutMs / 2) this.close(silence(silentMs));
      else {
        this.#socket.write(new JuteWriter().int(XID_PING).int(TYPE_PING).frame());
        this.#cancelTimer = afterReading(this.#runtime)(timeoutMs / 6, tick, 'background');
      }
    };
    tick();
  }
}

function silence(silentMs: number): Error {
  return new Error(`the server gave no answer for ${Math.ceil(silentMs)} ms`);
}
