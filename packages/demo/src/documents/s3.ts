import {
  GetObjectCommand,
  HeadObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { StaleTokenError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import type { StoreAddress } from '../job.js';
import type { FencedDocument, MetadataDocument, PlainDocument } from './document.js';
import { objectDocument, parse } from './object.js';

type S3Address = Extract<StoreAddress, { readonly kind: 's3' }>;

export function connect(address: Omit<S3Address, 'kind' | 'bucket' | 'key'>): S3Client {
  const { endpoint, region, accessKeyId, secretAccessKey } = address;
  const credentials = { accessKeyId, secretAccessKey };
  return new S3Client({ endpoint, region, credentials, forcePathStyle: true });
}

export function openPlain(address: S3Address): PlainDocument {
  const client = connect(address);
  const object = { Bucket: address.bucket, Key: address.key };
  return {
    async read() {
      try {
        const { Body } = await client.send(new GetObjectCommand(object));
        return parse(await Body?.transformToString());
      } catch (error) {
        if (error instanceof NoSuchKey) return [];
        throw error;
      }
    },
    async write(lines) {
      await client.send(new PutObjectCommand({ ...object, Body: JSON.stringify(lines) }));
    },
    async [Symbol.asyncDispose]() {
      client.destroy();
    },
  };
}

export function openFenced(address: S3Address): FencedDocument {
  const client = connect(address);
  const documents = new FencedS3({ client, bucket: address.bucket });
  return {
    ...objectDocument(documents, address.key),
    async prepare() {
      await documents.probe();
    },
    async [Symbol.asyncDispose]() {
      client.destroy();
    },
  };
}

/**
 * Keeps the token in the metadata only. A write compares it with the token that was read, and has
 * `If-Match`. It would be correct if an ETag identified a write, but it identifies bytes.
 */
export function openWithMetadata(address: S3Address): MetadataDocument {
  const client = connect(address);
  const object = { Bucket: address.bucket, Key: address.key };
  let read: { readonly etag: string; readonly token: bigint } | undefined;
  const tokenOf = (metadata: Record<string, string> = {}) => BigInt(metadata.token ?? 0);
  return {
    async read() {
      try {
        const { Body, ETag = '', Metadata } = await client.send(new GetObjectCommand(object));
        read = { etag: ETag, token: tokenOf(Metadata) };
        return parse(await Body?.transformToString());
      } catch (error) {
        if (error instanceof NoSuchKey) return [];
        throw error;
      }
    },
    async write(lines, token) {
      const highest = read?.token ?? 0n;
      if (token < highest)
        throw new StaleTokenError({ resource: object.Key, presented: token, highest });
      // Ceph 16 compares the ETag without its quotes. Other servers accept both forms.
      const condition = read ? { IfMatch: read.etag.replaceAll('"', '') } : { IfNoneMatch: '*' };
      const Metadata = { token: `${token}` };
      const Body = JSON.stringify(lines);
      await client.send(new PutObjectCommand({ ...object, Body, Metadata, ...condition }));
    },
    highest: async () => tokenOf((await client.send(new HeadObjectCommand(object))).Metadata),
    async [Symbol.asyncDispose]() {
      client.destroy();
    },
  };
}
