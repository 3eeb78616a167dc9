import { CODE, ProtocolError, ZooKeeperError } from './errors.js';
import type { JuteReader, JuteWriter } from './jute.js';

/** One request, and the reply to it. */
export interface Operation<Reply> {
  /** The server's number of its kind. */
  readonly type: number;
  /** The path whose watch it sets. */
  readonly watched?: string;
  write(to: JuteWriter): unknown;
  read(from: JuteReader): Reply;
}

/** Facts about a node. */
export interface Stat {
  /** The transaction that created it. Grows over all nodes of the ensemble. */
  readonly czxid: bigint;
  /** The transaction that wrote its data. */
  readonly mzxid: bigint;
  /** The time of that transaction by the leader's wall clock, in milliseconds since 1970. */
  readonly mtimeMs: number;
  /** The number of writes since its creation. */
  readonly version: number;
}

export const PERSISTENT = 0;
/** A node that ends with its creator's session. The server appends a growing number to its name. */
export const EPHEMERAL_SEQUENTIAL = 3;
/** A node that the servers delete some time after its last child was deleted. */
export const CONTAINER = 4;

const ALL_PERMISSIONS = 31;

/** Access rights of the nodes that are created. */
export type Acl = readonly { readonly scheme: string; readonly id: string }[];

export const OPEN: Acl = [{ scheme: 'world', id: 'anyone' }];
/** All rights for clients with the creator's credentials. */
export const CREATOR: Acl = [{ scheme: 'auth', id: '' }];

/** Replies with the path, which has a number at its end if the mode is sequential. */
export function create(path: string, data: string, mode: number, acl: Acl): Operation<string> {
  const type = mode === CONTAINER ? 19 : 1;
  return {
    type,
    write: (to) => {
      to.string(path).string(data).int(acl.length);
      for (const { scheme, id } of acl) to.int(ALL_PERMISSIONS).string(scheme).string(id);
      to.int(mode);
    },
    read: (from) => from.string(),
  };
}

/** @param version -1 for any */
export function remove(path: string, version = -1): Operation<void> {
  return { type: 2, write: (to) => to.string(path).int(version), read: () => undefined };
}

export function setData(path: string, data: string, version: number): Operation<Stat> {
  return {
    type: 5,
    write: (to) => to.string(path).string(data).int(version),
    read: readStat,
  };
}

/** Refuses the transaction unless the node exists. */
export function check(path: string): Operation<void> {
  return { type: 13, write: (to) => to.string(path).int(-1), read: () => undefined };
}

export function getData(
  path: string,
  isWatched: boolean,
): Operation<{ readonly data: string; readonly stat: Stat }> {
  return {
    type: 4,
    ...(isWatched && { watched: path }),
    write: (to) => to.string(path).bool(isWatched),
    read: (from) => ({ data: from.string(), stat: readStat(from) }),
  };
}

/** Reads the facts and sets a watch. After the refusal `noNode`, it watches for a creation. */
export function watchExists(path: string): Operation<Stat> {
  return {
    type: 3,
    watched: path,
    write: (to) => to.string(path).bool(true),
    read: readStat,
  };
}

export function getChildren(path: string): Operation<string[]> {
  return {
    type: 8,
    write: (to) => to.string(path).bool(false),
    read: (from) => from.strings(),
  };
}

/** Later reads of the session see everything that the leader had committed before this. */
export function sync(path: string): Operation<string> {
  return { type: 9, write: (to) => to.string(path), read: (from) => from.string() };
}

/** Carries out all operations or none. The reply has the result of each. */
export function transaction(operations: readonly Operation<unknown>[]): Operation<unknown[]> {
  return {
    type: 14,
    write: (to) => {
      for (const operation of operations) {
        to.int(operation.type).bool(false).int(-1);
        operation.write(to);
      }
      to.int(-1).bool(true).int(-1);
    },
    read: (from) => readResults(from, operations),
  };
}

function readResults(from: JuteReader, operations: readonly Operation<unknown>[]): unknown[] {
  const results: unknown[] = [];
  let refused: ZooKeeperError | undefined;
  for (let index = 0; ; index += 1) {
    const type = from.int();
    const isEnd = from.bool();
    from.int();
    if (isEnd) break;
    const operation = operations[index];
    if (type === -1) {
      // If one operation is refused, the results of those before it have the code 0.
      const code = from.int();
      if (code !== CODE.ok) refused ??= new ZooKeeperError(code, index);
    } else if (operation && type === operation.type) results.push(operation.read(from));
    else throw new ProtocolError(`a transaction was answered by another kind of result ${type}`);
  }
  if (refused) throw refused;
  if (results.length !== operations.length) {
    throw new ProtocolError('a transaction was answered by another number of results');
  }
  return results;
}

function readStat(from: JuteReader): Stat {
  const [czxid, mzxid] = [from.long(), from.long()];
  from.long();
  const mtimeMs = Number(from.long());
  const version = from.int();
  // Skips versions of children and rights, owner, sizes, and the children's last transaction.
  for (const _ of [0, 1]) from.int();
  from.long();
  for (const _ of [0, 1]) from.int();
  from.long();
  return { czxid, mzxid, mtimeMs, version };
}
