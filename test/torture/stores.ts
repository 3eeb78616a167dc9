import { S3Client } from '@aws-sdk/client-s3';
import { FencedGateway, type Objects, type Records } from '@fenced/client';
import { type CurrentRecord, FencedPostgres } from '@fenced/store/postgres';
import { type Current, FencedS3 } from '@fenced/store/s3';
import type { S3Address } from '@fenced/testbed';
import pg from 'pg';

/** Computes the next value. It is called again if another write came first. */
type Edit = (from: string | null) => string;

/** A stored value. */
interface Read {
  readonly value: string | null;
  /** The highest token, if the request returned it together with the value. */
  readonly highest?: string;
}

/** One way to store values under a token. */
export interface Store {
  update(name: string, token: bigint, edit: Edit): Promise<void>;
  read(name: string): Promise<Read>;
  /** Writes without reading the present value. */
  readonly put?: (name: string, token: bigint, value: string) => Promise<void>;
  /** Raises the ratchet, and reads. */
  readonly claim?: (name: string, token: bigint) => Promise<Read>;
}

export interface StoreAddresses {
  readonly s3: S3Address;
  readonly postgresUrl: string;
  /** If given, the clients use the stores through this gateway. */
  readonly gatewayUrl?: string;
}

/** Bucket, and table of the Postgres stores that need one. */
export const NAME = 'torture';

/** Opens the stores by their names. `naive` is one without a token check. */
export function openStores(addresses: StoreAddresses): Readonly<Record<string, Store>> {
  const { s3, postgresUrl, gatewayUrl } = addresses;
  if (gatewayUrl !== undefined) {
    const gateway = new FencedGateway({ url: gatewayUrl });
    return { s3: ofObjects(gateway.objects), records: ofRecords(gateway.records(NAME)) };
  }
  const pool = new pg.Pool({ connectionString: postgresUrl, max: 8 });
  pool.on('error', () => undefined);
  const ledger = new FencedPostgres({ pool, holdMs: 2_000 });
  return {
    s3: ofObjects(openBucket(s3)),
    records: ofRecords(ledger.records(NAME)),
    table: ofTable(pool, ledger),
    naive: withoutCheck(pool),
  };
}

export function openBucket(address: S3Address): FencedS3 {
  const client = new S3Client({ ...address, credentials: address, forcePathStyle: true });
  return new FencedS3({ client, bucket: NAME, requestTimeoutMs: 2_000 });
}

function ofObjects(objects: Objects): Store {
  const read = (current: Current | null): Read =>
    current === null
      ? { value: null }
      : { value: Buffer.from(current.body).toString(), highest: String(current.token) };
  return {
    async update(name, token, edit) {
      await objects.update(name, { token }, (current) => edit(read(current).value));
    },
    read: async (name) => read(await objects.get(name)),
    async put(name, token, value) {
      await objects.put(name, value, { token });
    },
    claim: async (name, token) => read(await objects.claimAndGet(name, { token })),
  };
}

function ofRecords(records: Records): Store {
  const read = (found: CurrentRecord | null): Read =>
    found === null ? { value: null } : { value: String(found.body), highest: String(found.token) };
  return {
    async update(name, token, edit) {
      await records.update(name, { token }, (found) => edit(read(found).value));
    },
    read: async (name) => read(await records.get(name)),
    async put(name, token, value) {
      await records.put(name, value, { token });
    },
    claim: async (name, token) => read(await records.claimAndGet(name, { token })),
  };
}

/** A store in a table of the caller's own, which writes in fenced transactions. */
function ofTable(pool: pg.Pool, ledger: FencedPostgres): Store {
  const { read } = statements(pool);
  return {
    async update(name, token, edit) {
      await ledger.transaction({ resource: name, token }, async (tx) => {
        const { rows } = await tx.query<{ value: string }>(READ, [name]);
        await tx.query(WRITE, [name, edit(rows[0]?.value ?? null)]);
      });
    },
    read,
  };
}

/** The negative control: a read, and a write that nobody checks. */
function withoutCheck(pool: pg.Pool): Store {
  const { read, write } = statements(pool);
  return {
    async update(name, _, edit) {
      const { value } = await read(`naive ${name}`);
      await write(`naive ${name}`, edit(value));
    },
    read: (name) => read(`naive ${name}`),
    put: (name, _, value) => write(`naive ${name}`, value),
  };
}

const READ = `SELECT value FROM ${NAME} WHERE name = $1`;
const WRITE = `INSERT INTO ${NAME} VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2`;

function statements(pool: pg.Pool) {
  return {
    async read(name: string): Promise<Read> {
      const { rows } = await pool.query<{ value: string }>(READ, [name]);
      return { value: rows[0]?.value ?? null };
    },
    async write(name: string, value: string): Promise<void> {
      await pool.query(WRITE, [name, value]);
    },
  };
}
