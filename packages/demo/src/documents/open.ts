import type { StorageAddress, StoreAddress } from '../job.js';
import type { FencedDocument, MetadataDocument, PlainDocument } from './document.js';

// Each client loads one driver only, which halves its start time.

export async function openPlain(address: StorageAddress): Promise<PlainDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openPlain(address);
  if (address.kind === 'postgres') return (await import('./postgres.js')).openPlain(address);
  throw new Error('a gateway requires a token for each write');
}

export async function openWithMetadata(address: StorageAddress): Promise<MetadataDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openWithMetadata(address);
  throw new Error('tokens in metadata are played on S3 only');
}

export async function openFenced(address: StorageAddress): Promise<FencedDocument> {
  if (address.kind === 'gateway') return (await import('./gateway.js')).openFenced(address);
  if (address.kind === 's3') return (await import('./s3.js')).openFenced(address);
  return (await import('./postgres.js')).openFenced(address);
}

/** Opens the document that gateways before this store write, without a gateway. */
export async function openBehindGateways(address: StoreAddress): Promise<FencedDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openFenced(address);
  return (await import('./postgres.js')).openRecord(address);
}
