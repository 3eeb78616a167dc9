import type { StorageAddress, StoreAddress } from '../job.js';
import type { FencedDocument, MarkedDocument, PlainDocument } from './document.js';

// Drivers are loaded where they are used: a client starts in half the time.

export async function openPlain(address: StorageAddress): Promise<PlainDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openPlain(address);
  if (address.kind === 'postgres') return (await import('./postgres.js')).openPlain(address);
  throw new Error('a gateway writes nothing without a token');
}

export async function openMarked(address: StorageAddress): Promise<MarkedDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openMarked(address);
  throw new Error('the story of the token in the metadata is told on S3');
}

export async function openFenced(address: StorageAddress): Promise<FencedDocument> {
  if (address.kind === 'gateway') return (await import('./gateway.js')).openFenced(address);
  if (address.kind === 's3') return (await import('./s3.js')).openFenced(address);
  return (await import('./postgres.js')).openFenced(address);
}

/** What gateways before that store write to. */
export async function openBehindGateways(address: StoreAddress): Promise<FencedDocument> {
  if (address.kind === 's3') return (await import('./s3.js')).openFenced(address);
  return (await import('./postgres.js')).openRecord(address);
}
