import { randomBytes, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  CreateBucketCommand,
  GetObjectCommand,
  HeadObjectCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { FencedS3 } from '@fenced/store/s3';
import { startS3 } from '@fenced/testbed';
import { compare, type Row, type Subject } from './measure.ts';

const TOKEN = 33n;
const MIB = 2 ** 20;
const STREAM_MIB = 100;

/** Bodies that gzip can shorten, and bodies that it cannot. */
const BODIES = {
  '1 KiB random': randomBytes(1024),
  '1 MiB random': randomBytes(MIB),
  '1 MiB of JSON': Buffer.from(
    JSON.stringify(Array.from({ length: 40_000 }, (_, id) => ({ id, name: `user ${id % 977}` }))),
  ).subarray(0, MIB),
};

/** How much slower are the store's calls than the plain requests of the SDK? */
export async function benchS3(): Promise<Row[]> {
  await using service = await startS3();
  const { endpoint, region, accessKeyId, secretAccessKey } = service;
  const credentials = { accessKeyId, secretAccessKey };
  const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  const bucket = `fenced-bench-${randomUUID()}`;
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const bench = new S3Bench(client, bucket);
  const rows: Row[] = [];
  for (const [name, body] of Object.entries(BODIES)) rows.push(...(await bench.of(name, body)));
  rows.push(...(await bench.streams()));
  client.destroy();
  return rows;
}

async function drained(body: Readable = Readable.from([])): Promise<void> {
  let bytes = 0;
  for await (const piece of body as AsyncIterable<Uint8Array>) bytes += piece.length;
  if (bytes !== STREAM_MIB * MIB) throw new Error(`the stream has ${bytes} bytes`);
}

async function compareEach(
  pairs: readonly [Subject, Subject][],
  times: number,
  warmUp: number,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const pair of pairs) rows.push(...(await compare('s3', pair, times, { rounds: 6, warmUp })));
  return rows;
}

class S3Bench {
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #documents: FencedS3;

  constructor(client: S3Client, bucket: string) {
    this.#client = client;
    this.#bucket = bucket;
    this.#documents = new FencedS3({ client, bucket });
  }

  async of(name: string, body: Uint8Array): Promise<Row[]> {
    const documents = this.#documents;
    const cold = new FencedS3({ client: this.#client, bucket: this.#bucket });
    await documents.put('get', body, { token: TOKEN });
    const pairs: readonly [Subject, Subject][] = [
      [
        { name: `PutObject, ${name}`, run: () => this.#put(body) },
        { name: 'put, version known', run: () => documents.put('put', body, { token: TOKEN }) },
      ],
      [
        {
          name: `HeadObject, then PutObject, ${name}`,
          run: async () => {
            await this.#client.send(new HeadObjectCommand({ Bucket: this.#bucket, Key: 'raw' }));
            await this.#put(body);
          },
        },
        {
          name: 'put, version not known',
          run: () => {
            cold.forget('cold');
            return cold.put('cold', body, { token: TOKEN });
          },
        },
      ],
      [
        { name: `GetObject, ${name}`, run: () => this.#get() },
        { name: 'get', run: () => documents.get('get') },
      ],
      [
        {
          name: `GetObject, then PutObject, ${name}`,
          run: async () => {
            await this.#get();
            await this.#put(body);
          },
        },
        { name: 'update', run: () => documents.update('update', { token: TOKEN }, () => body) },
      ],
    ];
    return await compareEach(pairs, body.length < MIB ? 20 : 3, 4);
  }

  /**
   * With `FENCED_S3_SERVER=minio`, uploads have parts. Ceph 16 cannot complete an upload under a
   * condition, so a temporary file is used there.
   */
  async streams(): Promise<Row[]> {
    const rows: Row[] = [];
    for (const [name, piece] of [
      ['random', randomBytes(MIB)],
      ['of JSON', BODIES['1 MiB of JSON']],
    ] as const) {
      const body = () => Readable.from(Array.from({ length: STREAM_MIB }, () => piece));
      const upload: Subject = {
        name: `lib-storage Upload, ${STREAM_MIB} MiB ${name}`,
        run: () => {
          const params = { Bucket: this.#bucket, Key: 'upload', Body: body() };
          return new Upload({ client: this.#client, params }).done();
        },
      };
      const put: Subject = {
        name: 'put of a stream',
        run: () => this.#documents.put('stream', body(), { token: TOKEN }),
      };
      const get: Subject = {
        name: `GetObject as a stream, ${STREAM_MIB} MiB ${name}`,
        run: async () => {
          const object = { Bucket: this.#bucket, Key: 'upload' };
          const { Body } = await this.#client.send(new GetObjectCommand(object));
          await drained(Body as Readable);
        },
      };
      const getStream: Subject = {
        name: 'getStream',
        run: async () => drained((await this.#documents.getStream('stream'))?.body),
      };
      const pairs: readonly [Subject, Subject][] = [
        [upload, put],
        [get, getStream],
      ];
      rows.push(...(await compareEach(pairs, 1, 1)));
    }
    return rows;
  }

  #put(body: Uint8Array): Promise<unknown> {
    return this.#client.send(
      new PutObjectCommand({ Bucket: this.#bucket, Key: 'raw', Body: body }),
    );
  }

  async #get(): Promise<void> {
    const object = { Bucket: this.#bucket, Key: 'raw' };
    const { Body } = await this.#client.send(new GetObjectCommand(object));
    await Body?.transformToByteArray();
  }
}
