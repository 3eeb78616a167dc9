import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';

export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** A web server that notes what it was asked, and answers as it is told to: for servers that are not what they say. */
export class ScriptedServer implements AsyncDisposable {
  readonly asked: Asked[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** `answer` gives null to cut the connection. */
  static async start(
    answer: (asked: Asked) => Answer | null | Promise<Answer | null>,
  ): Promise<ScriptedServer> {
    const server = createServer(async (incoming, outgoing) => {
      const body = Buffer.concat(await Array.fromAsync(incoming));
      const { method = '', url: path = '', headers } = incoming;
      const asked = { method, path, headers, body };
      scripted.asked.push(asked);
      const answered = await answer(asked);
      if (answered === null) incoming.socket.destroy();
      else
        outgoing
          .writeHead(answered.status, answered.headers)
          .end(method === 'HEAD' ? '' : answered.body);
    });
    const scripted = new ScriptedServer(server);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return scripted;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  count(method: string): number {
    return this.asked.filter((asked) => asked.method === method).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** How an S3 server may betray the one who relies on it. */
export interface Betrayal {
  readonly ignoresNoneMatch?: boolean;
  readonly ignoresMatch?: boolean;
  /** Checks all writers of a race, then lets them all write: as versitygw's posix backend may. */
  readonly checksBeforeItWrites?: boolean;
  readonly dropsMetadata?: boolean;
  readonly keepsLosers?: boolean;
  /** Sends what was stored decompressed, as some proxies and every `fetch` do. */
  readonly unzips?: boolean;
  /** Gives back the checksum that came with a write, which the SDK then holds against what it reads. */
  readonly keepsChecksums?: boolean;
}

/** Objects in memory behind S3's four calls; honest where nothing is betrayed. */
export function inMemory(betrayal: Betrayal): (asked: Asked) => Promise<Answer> {
  const objects = new Map<
    string,
    { etag: string; headers: Record<string, string>; body: Uint8Array }
  >();
  const waiting: (() => void)[] = [];
  const everyone = (): Promise<void> =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 8) for (const go of waiting.splice(0)) go();
    });
  return async ({ method, path, headers, body }) => {
    const key = path.split('?')[0] ?? '';
    const stored = objects.get(key);
    if (method === 'DELETE') {
      objects.delete(key);
      return { status: 204 };
    }
    if (method !== 'PUT')
      return stored
        ? {
            status: 200,
            headers: { ...stored.headers, etag: stored.etag },
            body: betrayal.unzips ? gunzipSync(stored.body) : stored.body,
          }
        : { status: 404, body: '<Error><Code>NoSuchKey</Code></Error>' };
    const { 'if-none-match': noneMatch, 'if-match': match } = headers;
    const exists = noneMatch === '*' && stored !== undefined && !betrayal.ignoresNoneMatch;
    const differs = match !== undefined && match !== stored?.etag && !betrayal.ignoresMatch;
    const refused = exists || differs;
    if (betrayal.checksBeforeItWrites && key.includes('/race-')) await everyone();
    if (!refused || betrayal.keepsLosers) {
      const etag = `"${createHash('md5').update(body).digest('hex')}"`;
      const prefix = betrayal.keepsChecksums ? /^x-amz-(meta|checksum)-/ : /^x-amz-meta-/;
      const metadata = Object.entries(headers).filter(([name]) => prefix.test(name));
      const kept = betrayal.dropsMetadata
        ? {}
        : (Object.fromEntries(metadata) as Record<string, string>);
      objects.set(key, { etag, headers: kept, body });
    }
    if (refused) return { status: 412, body: '<Error><Code>PreconditionFailed</Code></Error>' };
    return { status: 200, headers: { etag: objects.get(key)?.etag ?? '' } };
  };
}
