import '../node-version.js';
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { certificateOf, subjectOf } from '../s3/probe/certificate-text.js';
import { systemRuntime } from '../s3/runtime.js';

export { MemoryRecords } from './memory-records.js';

/** The first argument of `new S3Client`. */
export interface MemoryS3ClientConfig {
  readonly endpoint: string;
  readonly region: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  readonly forcePathStyle: boolean;
}

interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

interface Request {
  readonly method: string;
  /** `/bucket/key`, decoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface StoredObject {
  readonly etag: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  readonly modifiedMs: number;
}

interface Upload {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly parts: Map<number, Buffer>;
}

/** Headers that a write stores and a read returns. */
const KEPT =
  /^x-amz-(meta|server-side|object-lock|website|storage|checksum-[cs])|^(cache-control|content-(?!length|md5)|expires)/;
const KEYS_MAX = 1_000;

/**
 * An S3 server in the memory of this process, for tests of programs that use `FencedS3`. It
 * enforces conditional writes, as the store demands, and passes the contract suite of real servers.
 * It accepts any credentials, and any bucket exists. It brings its own certificate, so the first
 * write is not preceded by a probe. It has no versions, tags, ACLs, policies and
 * ranges of bytes.
 *
 * ```ts
 * await using s3 = await MemoryS3.start();
 * const client = new S3Client(s3.clientConfig);
 * ```
 */
export class MemoryS3 implements AsyncDisposable {
  readonly #server: Server;
  /** By `/bucket/key`. */
  readonly #objects = new Map<string, StoredObject>();
  readonly #uploads = new Map<string, Upload>();

  private constructor() {
    this.#server = createServer(async (incoming, outgoing) => {
      const url = new URL(incoming.url ?? '', 'http://memory');
      const { method = '', headers } = incoming;
      // A client that gave up before the end of its body gets no answer.
      const pieces = await Array.fromAsync(incoming).catch(() => null);
      if (pieces === null) return;
      const path = decodeURIComponent(url.pathname);
      const body = unframed(headers, Buffer.concat(pieces));
      const answer = this.#answer({ method, path, query: url.searchParams, headers, body });
      const length = Buffer.byteLength(answer.body ?? '');
      outgoing.writeHead(answer.status, {
        ...(answer.status !== 204 && { 'content-length': length }),
        ...answer.headers,
      });
      outgoing.end(method === 'HEAD' ? undefined : answer.body);
    });
  }

  /** Listens on a free port of the loopback interface. */
  static async start(): Promise<MemoryS3> {
    const s3 = new MemoryS3();
    await once(s3.#server.listen(0, '127.0.0.1'), 'listening');
    return s3;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get clientConfig(): MemoryS3ClientConfig {
    const { endpoint } = this;
    const credentials = { accessKeyId: 'memory', secretAccessKey: 'memory' };
    return { endpoint, region: 'us-east-1', credentials, forcePathStyle: true };
  }

  /** Ends the server and its connections. The objects are lost. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: Request): Answer {
    const { method, path, query } = request;
    const [, bucket = '', key = ''] = /^\/([^/]*)\/?(.*)$/s.exec(path) ?? [];
    if (key === '') return method === 'GET' ? this.#list(bucket, query) : done(method);
    const uploadId = query.get('uploadId');
    switch (method) {
      case 'PUT':
        return uploadId === null ? this.#put(request) : this.#putPart(uploadId, request);
      case 'POST':
        return uploadId === null ? this.#create(request) : this.#complete(uploadId, request);
      case 'DELETE':
        if (uploadId === null) this.#objects.delete(path);
        else this.#uploads.delete(uploadId);
        return { status: 204 };
      default:
        return this.#read(request);
    }
  }

  #read({ path, query, headers }: Request): Answer {
    const stored = this.#objects.get(path);
    if (stored === undefined && path.endsWith('/certificate.json')) return this.#certificate(path);
    if (stored === undefined) return failure(404, 'NoSuchKey');
    if (query.has('tagging')) return xml('<Tagging><TagSet/></Tagging>');
    if (query.has('acl')) return failure(501, 'NotImplemented');
    const { body, etag, modifiedMs } = stored;
    const wantsChecksum = headers['x-amz-checksum-mode'] === 'ENABLED';
    const kept = Object.entries(stored.headers).filter(
      ([name]) => wantsChecksum || !name.startsWith('x-amz-checksum'),
    );
    const facts = {
      etag,
      'last-modified': dateOf(modifiedMs).toUTCString(),
      'accept-ranges': 'none',
      'content-length': `${body.length}`,
    };
    return { status: 200, headers: { ...Object.fromEntries(kept), ...facts }, body };
  }

  /**
   * The verdict of the probe on this server, which the contract suite confirms. A certificate that
   * was stored since, by a probe, is returned instead.
   */
  #certificate(path: string): Answer {
    const [, bucket = ''] = path.split('/');
    const checkedAtMs = systemRuntime.wallClockMs();
    const certificate = certificateOf(subjectOf(bucket, `${this.endpoint} `), {
      state: 'safe',
      etagForm: 'quoted',
      conditionalComplete: true,
      distinctEtags: false,
      createAfterDelete: true,
      versionIds: 'none',
      checks: [],
      report: [],
      checkedAtMs,
      passed: ['large-put', 'file-put', 'upload', 'copy'],
      failed: {},
    });
    const body = JSON.stringify({ [subjectOf(bucket, `${this.endpoint} `)]: certificate });
    const headers = { etag: etagOf(Buffer.from(body)), 'last-modified': dateOf(0).toUTCString() };
    return { status: 200, headers, body };
  }

  #put({ path, headers, body }: Request): Answer {
    const source = headers['x-amz-copy-source'];
    if (source === undefined) return this.#store(path, headers, kept(headers), body, etagOf(body));
    const copied = this.#source(source);
    if (copied === undefined) return failure(404, 'NoSuchKey');
    const isNew = headers['x-amz-metadata-directive'] === 'REPLACE';
    const facts = isNew ? kept(headers) : copied.headers;
    const answer = this.#store(path, headers, facts, copied.body, etagOf(copied.body));
    if (answer.status !== 200) return answer;
    return xml(`<CopyObjectResult><ETag>${etagOf(copied.body)}</ETag></CopyObjectResult>`);
  }

  #source(source: string | readonly string[]): StoredObject | undefined {
    return this.#objects.get(`/${decodeURIComponent(String(source)).replace(/^\//, '')}`);
  }

  /** Checks the condition and writes, with nothing in between. */
  #store(
    path: string,
    { 'if-none-match': noneMatch, 'if-match': match }: IncomingHttpHeaders,
    headers: Readonly<Record<string, string>>,
    body: Buffer,
    etag: string,
  ): Answer {
    const stored = this.#objects.get(path);
    if (match !== undefined && stored === undefined) return failure(404, 'NoSuchKey');
    const isRefused = match === undefined ? noneMatch === '*' && stored : match !== stored?.etag;
    if (isRefused) return failure(412, 'PreconditionFailed');
    this.#objects.set(path, { etag, headers, body, modifiedMs: systemRuntime.wallClockMs() });
    return { status: 200, headers: { etag } };
  }

  #create({ path, headers }: Request): Answer {
    const id = randomUUID();
    this.#uploads.set(id, { path, headers: kept(headers), parts: new Map() });
    return xml(
      `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
    );
  }

  #putPart(uploadId: string, { query, headers, body }: Request): Answer {
    const upload = this.#uploads.get(uploadId);
    if (upload === undefined) return failure(404, 'NoSuchUpload');
    const source = headers['x-amz-copy-source'];
    const part = source === undefined ? body : this.#copied(source, headers);
    if (part === null) return failure(416, 'InvalidRange');
    upload.parts.set(Number(query.get('partNumber')), part);
    const etag = etagOf(part);
    if (source === undefined) return { status: 200, headers: { etag } };
    return xml(`<CopyPartResult><ETag>${etag}</ETag></CopyPartResult>`);
  }

  #copied(source: string | readonly string[], headers: IncomingHttpHeaders): Buffer | null {
    const stored = this.#source(source);
    if (stored === undefined) return null;
    const range = headers['x-amz-copy-source-range'];
    if (range === undefined) return stored.body;
    const [first = 0, last = 0] = String(range).match(/\d+/g)?.map(Number) ?? [];
    return last < stored.body.length ? stored.body.subarray(first, last + 1) : null;
  }

  #complete(uploadId: string, { path, headers, body }: Request): Answer {
    const upload = this.#uploads.get(uploadId);
    if (upload === undefined) return failure(404, 'NoSuchUpload');
    const numbers = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber>/g)];
    const parts = numbers.map(([, number]) => upload.parts.get(Number(number)));
    if (parts.length === 0 || parts.includes(undefined)) return failure(400, 'InvalidPart');
    const whole = Buffer.concat(parts as Buffer[]);
    const etag = etagOf(whole).replace(/"$/, `-${parts.length}"`);
    const answer = this.#store(path, headers, upload.headers, whole, etag);
    if (answer.status !== 200) return answer;
    this.#uploads.delete(uploadId);
    return xml(
      `<CompleteMultipartUploadResult><ETag>${etag}</ETag></CompleteMultipartUploadResult>`,
    );
  }

  #list(bucket: string, query: URLSearchParams): Answer {
    if (bucket === '') return xml('<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>');
    const begin = `/${bucket}/`;
    const prefix = query.get('prefix') ?? '';
    if (query.has('uploads')) return this.#listUploads(begin, prefix);
    const after = query.get('continuation-token') ?? query.get('start-after') ?? '';
    const keys = [...this.#objects.keys()]
      .filter((path) => path.startsWith(`${begin}${prefix}`))
      .map((path) => path.slice(begin.length))
      .filter((key) => Buffer.compare(Buffer.from(key), Buffer.from(after)) > 0)
      .sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
    const page = keys.slice(0, Math.min(KEYS_MAX, Number(query.get('max-keys') ?? KEYS_MAX)));
    const isTruncated = page.length < keys.length;
    const encode = query.get('encoding-type') === 'url' ? encodeURIComponent : escaped;
    const contents = page.map((key) => {
      const { etag, body, modifiedMs } = this.#objects.get(`${begin}${key}`) as StoredObject;
      return `<Contents><Key>${encode(key)}</Key><ETag>${escaped(etag)}</ETag><Size>${body.length}</Size><LastModified>${dateOf(modifiedMs).toISOString()}</LastModified></Contents>`;
    });
    const next = isTruncated
      ? `<NextContinuationToken>${escaped(page.at(-1) ?? '')}</NextContinuationToken>`
      : '';
    return xml(
      `<ListBucketResult><KeyCount>${page.length}</KeyCount><IsTruncated>${isTruncated}</IsTruncated>${next}${contents.join('')}</ListBucketResult>`,
    );
  }

  #listUploads(begin: string, prefix: string): Answer {
    const uploads = [...this.#uploads].flatMap(([id, { path }]) =>
      path.startsWith(`${begin}${prefix}`)
        ? `<Upload><Key>${escaped(path.slice(begin.length))}</Key><UploadId>${id}</UploadId></Upload>`
        : [],
    );
    return xml(`<ListMultipartUploadsResult>${uploads.join('')}</ListMultipartUploadsResult>`);
  }
}

function done(method: string): Answer {
  return { status: method === 'DELETE' ? 204 : 200 };
}

function xml(body: string): Answer {
  return { status: 200, headers: { 'content-type': 'application/xml' }, body };
}

function failure(status: number, code: string): Answer {
  return { ...xml(`<Error><Code>${code}</Code><Message>${code}</Message></Error>`), status };
}

function escaped(text: string): string {
  return text.replace(/[&<>"\p{Cc}]/gu, (one) => `&#${one.charCodeAt(0)};`);
}

function dateOf(ms: number) {
  // biome-ignore lint/style/noRestrictedGlobals: it reads no clock.
  return new Date(ms);
}

function etagOf(body: Uint8Array): string {
  return `"${createHash('md5').update(body).digest('hex')}"`;
}

function kept(headers: IncomingHttpHeaders): Readonly<Record<string, string>> {
  const entries = Object.entries(headers)
    .filter(([name]) => KEPT.test(name))
    .map(([name, value]) => [name, String(value).replace(/^aws-chunked,?\s*/, '')] as const)
    .filter(([, value]) => value !== '');
  return Object.fromEntries(entries);
}

/** The body without the frames of `aws-chunked`, in which the SDK sends streams. */
function unframed(headers: IncomingHttpHeaders, body: Buffer): Buffer {
  if (!String(headers['content-encoding']).includes('aws-chunked')) return body;
  const pieces: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const end = body.indexOf('\r\n', at);
    const bytes = Number.parseInt(body.toString('latin1', at, end), 16);
    if (!(bytes > 0)) break;
    pieces.push(body.subarray(end + 2, end + 2 + bytes));
    at = end + 2 + bytes + 2;
  }
  return Buffer.concat(pieces);
}
