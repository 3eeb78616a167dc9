import { type EtcdClient, EtcdError } from './client.js';

/** The keys of one acquisition: one for each resource, all put by one transaction. */
export interface Position {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly owner: string;
  /** The revision at which the keys were created: their place in every queue, and the token. */
  readonly created: bigint;
  /** The revision of the last transaction that has put them. */
  readonly modified: string;
  /** The etcd lease that deletes them. */
  readonly lease: string;
  /** The seconds that were asked for with that lease. */
  readonly ttlSeconds: number;
  /**
   * The end of the holder's lease by the wall clock of the process that put the keys, in
   * milliseconds since 1970. Only an extension by another process compares it.
   */
  readonly endsAtMs: number;
}

/** The keys that an acquisition is about to create. */
type Wanted = Omit<Position, 'created' | 'modified'>;

/** In the JSON of etcd, 64-bit integers are strings, bytes are base64, and zeros are left out. */
interface KeyValue {
  readonly key: string;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly value?: string;
  readonly lease?: string;
}

interface TxnReply {
  readonly header: { readonly revision: string };
  readonly succeeded?: boolean;
  readonly responses?: readonly {
    readonly response_range?: { readonly kvs?: readonly KeyValue[] };
    readonly response_delete_range?: { readonly prev_kvs?: readonly KeyValue[] };
  }[];
}

const BEFORE_OWNER = '/';
const AFTER_OWNERS = '0';
/** Percent-encoding leaves no such character. */
const AFTER_RESOURCES = '\x7f';

/**
 * The keys in etcd: `PREFIX RESOURCE / OWNER`, with the resource percent-encoded. The oldest key of
 * a resource holds its lock, and the others wait in the order of their creation. As all keys of a
 * set are created by one transaction, two sets never wait for each other.
 *
 * A lease of etcd deletes the keys of a client that has died. Invariant: a lease that its holder
 * relies on is never kept alive, but replaced by a new one. A leader of etcd answers a keep-alive
 * without asking a majority, and also revokes leases alone. It does so even if the majority has
 * elected another leader (etcd issue 15247). A grant and a transaction need the majority.
 */
export class Keys {
  readonly #etcd: EtcdClient;
  readonly #prefix: string;

  constructor(etcd: EtcdClient, prefix: string) {
    this.#etcd = etcd;
    this.#prefix = prefix;
  }

  /** The range of all keys. */
  get all(): { readonly key: string; readonly range_end: string } {
    return { key: base64(this.#prefix), range_end: base64(this.#prefix + AFTER_RESOURCES) };
  }

  /** @returns the id of a new lease. etcd grants at least 1.5 times its election timeout. */
  async grant(ttlSeconds: number, limitMs: number): Promise<string> {
    const reply = await this.#etcd.call<{ ID: string }>(
      'lease/grant',
      { TTL: String(ttlSeconds) },
      limitMs,
    );
    return reply.ID;
  }

  /** @returns true unless the lease was over */
  async keepAlive(lease: string, limitMs: number): Promise<boolean> {
    const body = { ID: lease };
    const reply = await this.#etcd.call<{ result?: { TTL?: string } }>(
      'lease/keepalive',
      body,
      limitMs,
    );
    return reply.result?.TTL !== undefined;
  }

  /**
   * Ends the lease, and so deletes its keys. If a copy of the transaction that puts them comes
   * later, the transaction fails, because there is no such lease.
   */
  async revoke(lease: string, limitMs: number): Promise<void> {
    await this.#etcd.call('lease/revoke', { ID: lease }, limitMs).catch((error: unknown) => {
      if (!(error instanceof EtcdError && error.status === 404)) throw error;
    });
  }

  /** @returns the milliseconds until the lease ends, rounded down to seconds */
  async remainingMs(lease: string, limitMs: number): Promise<number> {
    const body = { ID: lease };
    const reply = await this.#etcd.call<{ TTL?: string }>('lease/timetolive', body, limitMs);
    return Math.max(0, Number(reply.TTL ?? 0)) * 1_000;
  }

  /**
   * Creates the keys if no resource has any. If a reply is lost, the copy of the request finds the
   * keys that the first one has created.
   *
   * @returns the leases of the holders, if there are any
   */
  async createIfFree(wanted: Wanted, limitMs: number): Promise<Position | readonly string[]> {
    const { resources } = wanted;
    const reply = await this.#txn(
      {
        compare: resources.map((name) => ({ ...this.#queue(name), ...UNUSED })),
        success: this.#puts(wanted),
        failure: resources.map((name) => ({
          request_range: { ...this.#queue(name), ...OLDEST_FIRST, limit: '1' },
        })),
      },
      limitMs,
    );
    return (
      this.#created(wanted, reply) ?? [...new Set(kvsOf(reply).map(({ lease = '0' }) => lease))]
    );
  }

  /** Creates the keys behind those of others. If the request is repeated, nothing changes. */
  async enqueue(wanted: Wanted, limitMs: number): Promise<Position> {
    const position = this.#created(wanted, await this.#putIf(wanted, UNUSED, limitMs));
    if (!position) throw new EtcdError(500, 'the keys of a waiter were changed');
    return position;
  }

  /** @returns the key before ours in one of the queues; null if ours are the first, for good */
  async predecessor({ resources, created }: Position, limitMs: number): Promise<string | null> {
    const reply = await this.#txn(
      {
        success: resources.map((name) => ({
          request_range: {
            ...this.#queue(name),
            sort_order: 'DESCEND',
            sort_target: 'CREATE',
            limit: '1',
            keys_only: true,
            max_create_revision: String(created - 1n),
          },
        })),
      },
      limitMs,
    );
    return kvsOf(reply)[0]?.key ?? null;
  }

  /**
   * Puts the keys under a new lease, if they are unchanged.
   *
   * @returns null if another process has changed or deleted them
   */
  async move(position: Position, limitMs: number): Promise<Position | null> {
    const { resources, modified, lease } = position;
    const unchanged = { target: 'MOD', result: 'EQUAL', mod_revision: modified };
    const reply = await this.#putIf(position, unchanged, limitMs);
    if (reply.succeeded) return { ...position, modified: reply.header.revision };
    const found = kvsOf(reply);
    const isOurs = found.length === resources.length && found.every((kv) => kv.lease === lease);
    return isOurs ? { ...position, modified: found[0]?.mod_revision ?? '' } : null;
  }

  /** @returns the keys of an owner, or null if one of them is gone */
  async read(
    resources: readonly string[],
    owner: string,
    limitMs: number,
  ): Promise<Position | null> {
    const success = resources.map((name) => ({ request_range: { key: this.#key(name, owner) } }));
    const found = kvsOf(await this.#txn({ success }, limitMs));
    const [first] = found;
    if (!first || found.length < resources.length) return null;
    const [ttlSeconds = 0, endsAtMs = 0] = text(first.value ?? '')
      .split(' ')
      .map(Number);
    return {
      resources,
      owner,
      created: BigInt(first.create_revision),
      modified: first.mod_revision,
      lease: first.lease ?? '0',
      ttlSeconds,
      endsAtMs,
    };
  }

  /**
   * @returns the lease of the keys, or null if one of them was gone
   * @throws if an earlier copy of the request may have deleted them
   */
  async delete(
    resources: readonly string[],
    owner: string,
    limitMs: number,
  ): Promise<string | null> {
    const success = resources.map((name) => ({
      request_delete_range: { key: this.#key(name, owner), prev_kv: true },
    }));
    let isRepeated = false;
    const { responses = [] } = await this.#txn({ success }, limitMs, () => {
      isRepeated = true;
    });
    const deleted = responses.flatMap((one) => one.response_delete_range?.prev_kvs ?? []);
    if (isRepeated && deleted.length === 0) throw new Error('no reply shows who deleted the keys');
    return deleted.length === resources.length ? (deleted[0]?.lease ?? null) : null;
  }

  /** Puts the keys if the condition holds for each. Otherwise the reply has the stored keys. */
  #putIf(wanted: Wanted, condition: object, limitMs: number): Promise<TxnReply> {
    const keys = wanted.resources.map((name) => ({ key: this.#key(name, wanted.owner) }));
    const compare = keys.map((key) => ({ ...key, ...condition }));
    const failure = keys.map((key) => ({ request_range: key }));
    return this.#txn({ compare, success: this.#puts(wanted), failure }, limitMs);
  }

  #txn(request: object, limitMs: number, onRepeat?: () => void): Promise<TxnReply> {
    return this.#etcd.call<TxnReply>('kv/txn', request, limitMs, onRepeat);
  }

  /** The keys that `wanted` has created, by this request or by an earlier copy of it. */
  #created(wanted: Wanted, reply: TxnReply): Position | null {
    const { resources, owner } = wanted;
    if (reply.succeeded) {
      const { revision } = reply.header;
      return { ...wanted, created: BigInt(revision), modified: revision };
    }
    const keys = resources.map((name) => this.#key(name, owner));
    const found = kvsOf(reply);
    if (found.length < keys.length || found.some(({ key }) => !keys.includes(key))) return null;
    const { create_revision: created = '0', mod_revision: modified = '0' } = found[0] ?? {};
    return { ...wanted, created: BigInt(created), modified };
  }

  #puts({ resources, owner, lease, ttlSeconds, endsAtMs }: Wanted) {
    const value = base64(`${ttlSeconds} ${endsAtMs}`);
    return resources.map((name) => ({
      request_put: { key: this.#key(name, owner), value, lease },
    }));
  }

  #key(resource: string, owner: string): string {
    return base64(`${this.#prefix}${encodeURIComponent(resource)}${BEFORE_OWNER}${owner}`);
  }

  /** The range of all keys of a resource. */
  #queue(resource: string) {
    const name = `${this.#prefix}${encodeURIComponent(resource)}`;
    return { key: base64(name + BEFORE_OWNER), range_end: base64(name + AFTER_OWNERS) };
  }
}

/** On a range of keys: true if there is none. */
const UNUSED = { target: 'CREATE', result: 'EQUAL', create_revision: '0' };
const OLDEST_FIRST = { sort_order: 'ASCEND', sort_target: 'CREATE' };

function kvsOf({ responses = [] }: TxnReply): readonly KeyValue[] {
  return responses.flatMap(({ response_range: range }) => range?.kvs ?? []);
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

function text(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}
