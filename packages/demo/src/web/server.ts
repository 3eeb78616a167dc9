import { randomBytes, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { type Action, actions } from './feed.js';
import { type LiveRuns, RefusedError } from './live-runs.js';

const HOST = '127.0.0.1';
const BODY_BYTES_MAX = 1_000;
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
};
/** A page that finds this mark in itself offers live runs. */
const MARK = '<meta name="live" content="yes" />';
const HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'self'; img-src data:; connect-src 'self' https:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

/** An HTTP status with its reason. */
class Problem extends Error {
  readonly status: number;

  constructor(status: number, reason: string) {
    super(reason);
    this.status = status;
  }
}

/**
 * Serves the page and the live runs on loopback. The path of every request begins with a random
 * token. So neither other users nor other sites can press the buttons, not even by DNS rebinding.
 */
export class WebServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #token: Buffer = Buffer.from(randomBytes(24).toString('base64url'));
  readonly #folder: string;
  readonly #runs: LiveRuns;

  /** @param folder the built page */
  static async start(folder: string, runs: LiveRuns): Promise<WebServer> {
    const web = new WebServer(folder, runs);
    await once(web.#server.listen(0, HOST), 'listening');
    return web;
  }

  private constructor(folder: string, runs: LiveRuns) {
    this.#folder = folder;
    this.#runs = runs;
    this.#server = createServer((request, reply) => {
      this.#answer(request, reply).catch((error: unknown) => {
        const status = error instanceof Problem ? error.status : 500;
        if (reply.headersSent) reply.destroy();
        else reply.writeHead(status, HEADERS).end(error instanceof Error ? error.message : '');
      });
    });
  }

  get url(): string {
    return `http://${this.#authority}/${this.#token}/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  get #authority(): string {
    return `${HOST}:${(this.#server.address() as AddressInfo).port}`;
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const path = this.#pathOf(request);
    const { method } = request;
    if (method === 'GET' && path === 'live/feed') return this.#feed(reply);
    if (method === 'GET') return this.#file(path, reply);
    if (method !== 'POST') throw new Problem(405, 'use GET or POST');
    const body = await bodyOf(request);
    try {
      if (path === 'live/begin') this.#runs.begin(body);
      else if (path === 'live/act') await this.#runs.act(actionOf(body));
      else throw new Problem(404, 'there is nothing here');
    } catch (error) {
      throw error instanceof RefusedError ? new Problem(409, error.message) : error;
    }
    reply.writeHead(204, HEADERS).end();
  }

  /**
   * Returns the path behind the token.
   *
   * @throws {Problem} if the request does not come from the page
   */
  #pathOf({ url = '', headers }: IncomingMessage): string {
    const { host, origin } = headers;
    if (host !== this.#authority) throw new Problem(421, `the host is ${this.#authority}`);
    if (origin !== undefined && origin !== `http://${this.#authority}`)
      throw new Problem(403, 'another site may not ask');
    const [, token = '', ...path] = new URL(url, this.url).pathname.split('/');
    const given = Buffer.from(token);
    if (given.length !== this.#token.length || !timingSafeEqual(given, this.#token))
      throw new Problem(404, 'there is nothing here; open the whole address that was printed');
    return path.join('/');
  }

  async #feed(reply: ServerResponse): Promise<void> {
    reply.writeHead(200, { ...HEADERS, 'content-type': 'text/event-stream' });
    const end = await this.#runs.listen((message) => {
      reply.write(`data: ${JSON.stringify(message)}\n\n`);
    });
    reply.on('close', end);
  }

  async #file(path: string, reply: ServerResponse): Promise<void> {
    const name = normalize(decodeURIComponent(path) || 'index.html');
    const bytes = await readFile(join(this.#folder, join('/', name))).catch(() => {
      throw new Problem(404, 'there is no such file');
    });
    const isPage = name === 'index.html';
    const type = TYPES[extname(name)] ?? 'application/octet-stream';
    const content = isPage ? bytes.toString().replace('<head>', `<head>${MARK}`) : bytes;
    reply.writeHead(200, { ...HEADERS, 'content-type': type }).end(content);
  }
}

async function bodyOf(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  // A page of another site can send forms, but no request of this type.
  if (request.headers['content-type'] !== 'application/json')
    throw new Problem(415, 'send application/json');
  const parts: Buffer[] = [];
  for await (const part of request) {
    parts.push(part);
    if (parts.reduce((sum, { length }) => sum + length, 0) > BODY_BYTES_MAX)
      throw new Problem(413, `at most ${BODY_BYTES_MAX} bytes are allowed`);
  }
  try {
    return Object(JSON.parse(Buffer.concat(parts).toString()));
  } catch {
    throw new Problem(400, 'the body is no JSON');
  }
}

function actionOf({ action, client, node }: Readonly<Record<string, unknown>>): Action {
  const known = actions.find((one) => one === action);
  if (!known) throw new Problem(400, `action is one of ${actions.join(', ')}`);
  return {
    action: known,
    ...((client === 1 || client === 2) && { client }),
    ...(typeof node === 'string' && { node }),
  };
}
