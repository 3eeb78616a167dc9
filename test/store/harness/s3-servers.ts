import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
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
  /**
   * True if the condition of the request held when its headers came; null if it was not checked.
   */
  readonly heldAtFirst?: boolean | null;
}

/** Returns the answers of a server. Null cuts the connection. */
export interface Script {
  (asked: Asked): Answer | null | Promise<Answer | null>;
  /** Answers as soon as the headers of a request have come. Its body is not read. */
  readonly early?: (path: string, headers: IncomingHttpHeaders) => Answer | undefined;
  /** Called when the headers have come, and before the body: whether the condition holds then. */
  readonly holds?: (path: string, headers: IncomingHttpHeaders) => boolean | Promise<boolean>;
}

/** A web server that records its requests, and answers by a script. */
export class ScriptedServer implements AsyncDisposable {
  readonly asked: Asked[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(answer: Script): Promise<ScriptedServer> {
    const server = createServer(async (incoming, outgoing) => {
      const early = answer.early?.(incoming.url ?? '', incoming.headers);
      if (early) return void outgoing.writeHead(early.status).end(early.body);
      const heldAtFirst = (await answer.holds?.(incoming.url ?? '', incoming.headers)) ?? null;
      // A client that gives up gets no answer.
      const pieces = await Array.fromAsync(incoming).catch(() => null);
      if (pieces === null) return;
      const body = Buffer.concat(pieces);
      const { method = '', url: path = '', headers } = incoming;
      const asked = { method, path, headers, body, heldAtFirst };
      scripted.asked.push(asked);
      const answered = await answer(asked);
      if (answered === null) incoming.socket.destroy();
      else
        outgoing
          .writeHead(answered.status, {
            ...(answered.body !== undefined &&
              !answered.headers?.['transfer-encoding'] && {
                'content-length': Buffer.byteLength(answered.body),
              }),
            ...answered.headers,
          })
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

/** The faults of a lying S3 server. */
export interface Betrayal {
  readonly ignoresNoneMatch?: boolean;
  readonly ignoresMatch?: boolean;
  /** Creates the object if a write with `If-Match` finds none. */
  readonly createsUponMatch?: boolean;
  /** Checks all writers of a race, then lets all of them write, as versitygw on posix may. */
  readonly checksBeforeItWrites?: boolean;
  /**
   * Checks the condition when the headers come, and writes when the body is there (versitygw 1.2).
   */
  readonly checksHeadersOnly?: boolean;
  /**
   * Lets a second writer win, if its condition held when its headers came. Asked once for each
   * version that two writers want to replace.
   */
  readonly letsTwoWin?: () => boolean;
  /** The name in its `Server` header. */
  readonly server?: string;
  /** Checks the headers of a long body late, as a busy server may. */
  readonly looksLate?: boolean;
  /** Ignores the condition of every n-th request. */
  readonly ignoresEvery?: number;
  readonly dropsMetadata?: boolean;
  readonly keepsLosers?: boolean;
  /** Answers 200 and stores nothing, from the second write of a key on. */
  readonly losesWrites?: boolean;
  /** Reads return the object before the last write. */
  readonly readsAreLate?: boolean;
  /**
   * Makes ETags of the `length` only, or of the last KiB (`tail`). Or of the length and a clock,
   * which ticks with each read (`clock`) or every 4 ms. `none`: there are none. `new`: each write
   * has its own.
   */
  readonly etags?: 'none' | 'length' | 'clock' | 'clock-4ms' | 'tail' | 'new';
  /** The default encryption of the bucket. Under `aws:kms`, each write has an ETag of its own. */
  readonly encryption?: 'aws:kms' | 'AES256';
  /** Uses the digest as ETag of completed uploads, or of all bodies above 2 MiB. */
  readonly digests?: 'uploads' | 'large';
  /** Answers writes without an ETag. */
  readonly putsHaveNoEtag?: boolean;
  /** Ignores all conditions of a Complete, or only `If-Match`. */
  readonly ignoresOnComplete?: 'all' | 'match';
  readonly completesForAll?: boolean;
  /**
   * Ignores the conditions of one kind of write only. `large`: with a body above 5 MiB. `expect`:
   * with `Expect: 100-continue`. `unsigned`: with an unsigned body. `parts`: of two or more parts.
   */
  readonly ignoresOn?: keyof typeof IS_IGNORED;
  /** Checks the condition, and then puts two or more parts together, as versitygw on posix does. */
  readonly checksBeforeAssembly?: boolean;
  /** Sends stored bytes decompressed, as some proxies and every `fetch` do. */
  readonly unzips?: boolean;
  /** Refuses to copy parts, or copies more bytes than the client has asked for. */
  readonly copies?: 'never' | 'too much';
  /** The answer to a request for an ACL. @default 501 */
  readonly acl?: Answer;
  /** Stores different keys as one: see `FOLDS`. */
  readonly folds?: keyof typeof FOLDS;
  /** Returns the checksum of a write, which the SDK then compares with the bytes. */
  readonly keepsChecksums?: boolean;
}

interface StoredHere {
  readonly etag: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

interface UploadHere {
  readonly headers: Readonly<Record<string, string>>;
  readonly parts: Map<number, Uint8Array>;
}

/** The ways in which file systems, databases and web frameworks change keys. */
const FOLDS = {
  case: (key: string) => key.toLowerCase(),
  unicode: (key: string) => key.normalize('NFC'),
  plus: (key: string) => key.replaceAll('+', ' '),
  length: (key: string) => key.slice(0, 255),
} as const;

/** For each value of `ignoresOn`: true if the server ignores the conditions of this write. */
const IS_IGNORED = {
  large: ({ method, body }: Asked) => method === 'PUT' && body.length > 5 * 2 ** 20,
  expect: ({ headers }: Asked) => headers.expect === '100-continue',
  unsigned: ({ headers }: Asked) => headers['x-amz-content-sha256'] === 'UNSIGNED-PAYLOAD',
  parts: (_: Asked, parts: number) => parts > 1,
} as const;

const REFUSED: Answer = { status: 412, body: '<Error><Code>PreconditionFailed</Code></Error>' };
const RACERS = 8;
const ENCRYPTION = 'x-amz-server-side-encryption';
const LAST_MODIFIED = 'Fri, 27 Nov 2026 00:00:00 GMT';

/** A server that keeps objects in memory. Without a fault, it keeps all conditions. */
export function inMemory(betrayal: Betrayal): (asked: Asked) => Promise<Answer> {
  const server = new InMemory(betrayal);
  const answer = async (asked: Asked): Promise<Answer> => {
    const { headers, ...answered } = await server.answer(asked);
    return {
      ...answered,
      headers: { ...headers, ...(betrayal.server && { server: betrayal.server }) },
    };
  };
  if (!betrayal.checksHeadersOnly && !betrayal.letsTwoWin) return answer;
  return Object.assign(answer, {
    holds: async (path: string, headers: IncomingHttpHeaders) => {
      if (betrayal.looksLate && Number(headers['content-length']) > 10_000) await setTimeout(20);
      return server.holds(new URL(path, 'http://here').pathname, headers);
    },
  });
}

class InMemory {
  readonly #betrayal: Betrayal;
  readonly #objects = new Map<string, StoredHere>();
  readonly #before = new Map<string, StoredHere | undefined>();
  readonly #uploads = new Map<string, UploadHere>();
  readonly #waiting: (() => void)[] = [];
  readonly #assembling: (() => void)[] = [];
  readonly #contended = new Set<string>();
  #requests = 0;
  #writes = 0;
  #ticks = 0;

  constructor(betrayal: Betrayal) {
    this.#betrayal = betrayal;
  }

  async answer(asked: Asked): Promise<Answer> {
    const url = new URL(asked.path, 'http://here');
    const key = this.#keyOf(url);
    const uploadId = url.searchParams.get('uploadId');
    const { method } = asked;
    if (method === 'POST' && uploadId === null) return this.#createUpload(asked);
    if (method === 'POST') return this.#complete(key, uploadId ?? '', asked);
    if (method === 'DELETE' && uploadId !== null) this.#uploads.delete(uploadId);
    else if (method === 'DELETE') this.#objects.delete(key);
    if (method === 'DELETE') return { status: 204 };
    if (url.searchParams.has('acl'))
      return (
        this.#betrayal.acl ?? {
          status: 501,
          body: '<Error><Code>NotImplemented</Code></Error>',
        }
      );
    if (method !== 'PUT') return this.#read(key);
    const part = Number(url.searchParams.get('partNumber'));
    if (part === 0) {
      const ignored = this.#isIgnored(asked, 1);
      const ignores = { match: ignored, noneMatch: ignored };
      return this.#write(key, asked, kept(asked, this.#betrayal), asked.body, ignores);
    }
    const upload = this.#uploads.get(uploadId ?? '');
    if (asked.headers['x-amz-copy-source'] !== undefined)
      return this.#copy(asked.headers, (bytes) => upload?.parts.set(part, bytes));
    upload?.parts.set(part, asked.body);
    return { status: 200, headers: { etag: `"${part}"` } };
  }

  #copy(
    { 'x-amz-copy-source': source, 'x-amz-copy-source-range': range }: IncomingHttpHeaders,
    use: (bytes: Uint8Array) => void,
  ): Answer {
    const { copies } = this.#betrayal;
    if (copies === 'never')
      return { status: 501, body: '<Error><Code>NotImplemented</Code></Error>' };
    const body = this.#objects.get(`/${String(source)}`)?.body ?? new Uint8Array();
    const [first = 0, last = 0] = String(range).match(/\d+/g)?.map(Number) ?? [];
    if (last >= body.length)
      return { status: 416, body: '<Error><Code>InvalidRange</Code></Error>' };
    use(copies === 'too much' ? body : body.subarray(first, last + 1));
    return { status: 200, body: '<CopyPartResult><ETag>"part"</ETag></CopyPartResult>' };
  }

  #keyOf({ pathname }: URL): string {
    const { folds } = this.#betrayal;
    return folds === undefined ? pathname : FOLDS[folds](decodeURIComponent(pathname));
  }

  /** True if the condition of a write holds now. */
  holds(key: string, { 'if-none-match': noneMatch, 'if-match': match }: IncomingHttpHeaders) {
    const stored = this.#objects.get(key);
    return !(noneMatch === '*' && stored) && (match === undefined || match === stored?.etag);
  }

  #read(key: string): Answer {
    this.#ticks++;
    const { unzips, readsAreLate } = this.#betrayal;
    const stored = readsAreLate ? this.#before.get(key) : this.#objects.get(key);
    if (!stored) return { status: 404, body: '<Error><Code>NoSuchKey</Code></Error>' };
    const { headers, etag, body } = stored;
    const isOurs = unzips && body[0] === 0x1f;
    return {
      status: 200,
      headers: { ...headers, ...(etag && { etag }), 'last-modified': LAST_MODIFIED },
      body: isOurs ? gunzipSync(body) : body,
    };
  }

  async #write(
    key: string,
    { method, headers, heldAtFirst = null }: Asked,
    keptHeaders: Readonly<Record<string, string>>,
    body: Uint8Array,
    ignores: { readonly match?: boolean; readonly noneMatch?: boolean; readonly waits?: boolean },
  ): Promise<Answer> {
    const { betrayal, stored } = { betrayal: this.#betrayal, stored: this.#objects.get(key) };
    const { 'if-none-match': noneMatch, 'if-match': match } = headers;
    const isIgnored =
      betrayal.ignoresEvery !== undefined && ++this.#requests % betrayal.ignoresEvery === 0;
    const exists = noneMatch === '*' && stored !== undefined;
    const differs =
      match !== undefined && match !== stored?.etag && !(betrayal.createsUponMatch && !stored);
    const refused =
      !isIgnored &&
      !(heldAtFirst === true && this.#winsToo(`${key} ${match}`, exists || differs)) &&
      ((exists && !betrayal.ignoresNoneMatch && !ignores.noneMatch) ||
        (differs && !betrayal.ignoresMatch && !ignores.match));
    const isRace = key.includes(ignores.waits ? '/upload' : '/race');
    if ((betrayal.checksBeforeItWrites || ignores.waits) && isRace) await this.#everyone();
    if ((!refused || betrayal.keepsLosers) && !(betrayal.losesWrites && stored)) {
      this.#before.set(key, this.#objects.get(key));
      const encryption = keptHeaders[ENCRYPTION] ?? betrayal.encryption;
      const etag = encryption === 'aws:kms' ? `"kms-${++this.#writes}"` : this.#etag(method, body);
      const encrypted = { ...keptHeaders, ...(encryption && { [ENCRYPTION]: encryption }) };
      this.#objects.set(key, { etag, headers: encrypted, body });
    }
    if (refused) return REFUSED;
    const { etag, headers: { [ENCRYPTION]: encryption } = {} } = this.#objects.get(key) ?? {};
    return {
      status: 200,
      headers: {
        ...(etag && !betrayal.putsHaveNoEtag && { etag }),
        ...(encryption && { [ENCRYPTION]: encryption }),
      },
    };
  }

  /** True if a writer whose condition held at first is applied, although another was quicker. */
  #winsToo(version: string, isLate: boolean): boolean {
    const { letsTwoWin } = this.#betrayal;
    if (letsTwoWin === undefined) return true;
    if (!isLate || this.#contended.has(version)) return false;
    this.#contended.add(version);
    return letsTwoWin();
  }

  #etag(method: string, body: Uint8Array): string {
    this.#writes++;
    const { digests, etags } = this.#betrayal;
    const isDigest = digests === 'uploads' ? method === 'POST' : digests && body.length > 2 ** 21;
    switch (isDigest ? undefined : etags) {
      case 'none':
        return '';
      case 'length':
        return `"${body.length}"`;
      case 'clock':
        return `"${this.#ticks}-${body.length}"`;
      case 'clock-4ms':
        return `"${Math.floor(performance.now() / 4)}-${body.length}"`;
      case 'tail':
        return `"${createHash('md5').update(body.subarray(-1024)).digest('hex')}"`;
      case 'new':
        return `"${this.#writes}"`;
    }
    return `"${createHash('md5').update(body).digest('hex')}"`;
  }

  #createUpload(asked: Asked): Answer {
    const id = `${++this.#writes}`;
    this.#uploads.set(id, { headers: kept(asked, this.#betrayal), parts: new Map() });
    return {
      status: 200,
      body: `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
    };
  }

  async #complete(key: string, id: string, asked: Asked): Promise<Answer> {
    const upload = this.#uploads.get(id);
    if (!upload) return { status: 404, body: '<Error><Code>NoSuchUpload</Code></Error>' };
    const body = Buffer.concat(
      [...upload.parts].toSorted(([a], [b]) => a - b).map(([, part]) => part),
    );
    const { ignoresOnComplete, completesForAll, checksBeforeAssembly } = this.#betrayal;
    const ignored = this.#isIgnored(asked, upload.parts.size);
    const assembles = checksBeforeAssembly && upload.parts.size > 1;
    const heldAtFirst = assembles ? this.holds(key, asked.headers) : null;
    if (heldAtFirst) await this.#assembled();
    const answer = await this.#write(key, { ...asked, heldAtFirst }, upload.headers, body, {
      match: ignored || ignoresOnComplete !== undefined,
      noneMatch: ignored || ignoresOnComplete === 'all',
      ...(completesForAll && { waits: true }),
    });
    if (answer.status !== 200) return answer;
    this.#uploads.delete(id);
    const { etag = '' } = answer.headers ?? {};
    return {
      status: 200,
      body: `<CompleteMultipartUploadResult><ETag>${etag}</ETag></CompleteMultipartUploadResult>`,
    };
  }

  #isIgnored(asked: Asked, parts: number): boolean {
    const { ignoresOn } = this.#betrayal;
    return ignoresOn !== undefined && IS_IGNORED[ignoresOn](asked, parts);
  }

  /** Waits for a second, or until a second upload is put together at the same time. */
  async #assembled(): Promise<void> {
    const other = this.#assembling.shift();
    if (other) return other();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#assembling.push(resolve);
    await Promise.race([promise, setTimeout(1_000)]);
  }

  #everyone(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === RACERS) for (const go of this.#waiting.splice(0)) go();
    });
  }
}

/** The headers of a PUT that the server keeps, and returns to each GET. */
function kept(
  { headers }: Asked,
  { dropsMetadata, keepsChecksums }: Betrayal,
): Readonly<Record<string, string>> {
  if (dropsMetadata) return {};
  const names =
    /^x-amz-(meta|server-side|object-lock|website)-|^(cache-control|content-(?!length)|expires)/;
  const all = keepsChecksums ? new RegExp(`${names.source}|^x-amz-checksum-`) : names;
  const entries = Object.entries(headers).filter(([name]) => all.test(name));
  return Object.fromEntries(entries) as Record<string, string>;
}
