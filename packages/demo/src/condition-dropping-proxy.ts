import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  PutObjectCommand,
  type S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3';

const METADATA = 'x-amz-meta-';

/**
 * An HTTP proxy that drops the conditions of writes, as several proxies and servers do. It signs
 * each write anew, and sends it to a real S3 server without a condition. So every write succeeds.
 */
export class ConditionDroppingProxy implements AsyncDisposable {
  readonly host = '127.0.0.1';
  readonly #server: Server;
  readonly #client: S3Client;

  private constructor(server: Server, client: S3Client) {
    this.#server = server;
    this.#client = client;
  }

  /** @param client destroyed with the proxy */
  static async start(client: S3Client): Promise<ConditionDroppingProxy> {
    const server = createServer((incoming, outgoing) => {
      forward(client, incoming, outgoing).catch((error: unknown) => fail(outgoing, error));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return new ConditionDroppingProxy(server, client);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    this.#client.destroy();
  }
}

async function forward(
  client: S3Client,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const { pathname, searchParams } = new URL(incoming.url ?? '', 'http://proxy');
  const [, Bucket = '', ...path] = pathname.split('/').map(decodeURIComponent);
  const object = { Bucket, Key: path.join('/') };
  const body = Buffer.concat(await Array.fromAsync(incoming));
  const { method, headers } = incoming;
  if (method === 'POST' || searchParams.has('uploadId')) outgoing.writeHead(501).end();
  else if (method === 'DELETE') {
    await client.send(new DeleteObjectCommand(object));
    outgoing.writeHead(204).end();
  } else if (method === 'PUT') {
    const given = Object.entries(headers).filter(([name]) => name.startsWith(METADATA));
    const Metadata = Object.fromEntries(
      given.map(([name, value]) => [name.slice(METADATA.length), String(value)]),
    );
    const { 'content-type': ContentType, 'content-encoding': ContentEncoding } = headers;
    const put = { ...object, Body: body, Metadata, ContentType, ContentEncoding };
    const { ETag = '' } = await client.send(new PutObjectCommand(put));
    outgoing.writeHead(200, { etag: ETag }).end();
  } else {
    const isHead = method === 'HEAD';
    const found = isHead
      ? { ...(await client.send(new HeadObjectCommand(object))), Body: undefined }
      : await client.send(new GetObjectCommand(object));
    const metadata = Object.entries(found.Metadata ?? {});
    const all = {
      etag: found.ETag,
      'content-type': found.ContentType,
      'content-encoding': found.ContentEncoding,
      'content-length': found.ContentLength,
      'last-modified': found.LastModified?.toUTCString(),
      ...Object.fromEntries(metadata.map(([name, value]) => [METADATA + name, value])),
    };
    const known = Object.entries(all).filter(([, value]) => value !== undefined);
    outgoing.writeHead(200, Object.fromEntries(known) as Record<string, string>);
    outgoing.end(await found.Body?.transformToByteArray());
  }
}

function fail(outgoing: ServerResponse, error: unknown): void {
  const isOfS3 = error instanceof S3ServiceException;
  const status = (isOfS3 ? error.$metadata.httpStatusCode : undefined) ?? 500;
  const name = isOfS3 ? error.name : 'InternalError';
  outgoing.writeHead(status).end(`<Error><Code>${name}</Code></Error>`);
}
