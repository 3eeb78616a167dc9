import { NoQuorumError, QuorumError, Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { STORAGE_VERSION } from '../../packages/lock/src/core/mismatch.js';
import { systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { Clients, until } from './harness/redlock-nodes.js';

let service: Awaited<ReturnType<typeof startLocalRedis>>;
let clients: Clients;
beforeAll(async () => {
  service = await startLocalRedis(5);
});
afterAll(async () => {
  await service?.stop();
});
beforeEach(() => {
  clients = new Clients();
});
afterEach(async () => {
  clients[Symbol.dispose]();
  await Promise.all(service.nodes.map((node) => node.wake()));
});

type Place = Pick<LocalRedisNode, 'port'>;

function server(at: number): LocalRedisNode {
  const node = service.nodes[at];
  if (!node) throw new Error(`there is no server ${at}`);
  return node;
}

/** A service with these names, in the order of the servers. */
function named(
  names: string,
  servers: readonly Place[] = service.nodes,
  client = connect,
): Redlock {
  const nodes = [...names].map((name, at) => ({ name, client: client(servers[at]?.port ?? 0) }));
  return new Redlock({ nodes, keyPrefix: clients.keyPrefix });
}

function connect(port: number): Redis {
  return clients.connect(port);
}

/** Acquires once, and waits until all these servers vote. */
async function votingEverywhere(lock: Redlock, servers: readonly Place[]): Promise<void> {
  const lease = await lock.acquire('x', { ttlMs: 100, waitMs: 10_000 });
  await lease.release();
  await clients.untilVoting(...servers);
}

async function refusalOf(lock: Redlock): Promise<QuorumError> {
  const error: unknown = await lock.acquire('y', { ttlMs: 1_000 }).catch((caught) => caught);
  if (error instanceof QuorumError) return error;
  throw new Error(`no refusal: ${String(error)}`);
}

const hashOf = (at: number): Promise<Record<string, string>> =>
  connect(server(at).port).hgetall(`${clients.keyPrefix}node`);

describe('a difference of node names', () => {
  test('is reported with both lists and the difference, in errors, results and status', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const other = named('abd');
    const told =
      'members differ: this client has [a, b, d], nodes a and b were set up with [a, b, c] (only this client: d; only there: c), node d was set up as c with [a, b, c] (only this client: d; only there: c); configure all clients alike, see docs/production.md';
    const error = await refusalOf(other);
    expect(error).toMatchObject({ code: 'config-mismatch' });
    const attempt = await other.tryAcquire('y', { ttlMs: 1_000 });
    expect(attempt).toMatchObject({ ok: false, reason: 'config-mismatch' });
    // These texts may name fewer nodes than `told`: a client does not wait for the last node.
    const first = told.slice(0, told.indexOf(' (only'));
    for (const text of [error.message, attempt.ok ? '' : attempt.hint]) {
      expect(text).toContain('this client has [a, b, d]');
      expect(text).toMatch(
        /set up (as c )?with \[a, b, c\] \(only this client: d; only there: c\)/,
      );
      expect(text).toContain('configure all clients alike');
    }
    expect(error.nodes.filter(({ answer }) => answer === 'config-mismatch').length).toBeGreaterThan(
      1,
    );
    expect(error.nodes.find(({ answer }) => answer === 'config-mismatch')).toMatchObject({
      members: ['a', 'b', 'c'],
    });
    expect(await other.readmit()).toMatchObject({
      ok: false,
      reason: expect.stringContaining(first.slice(0, 45)),
    });
    for (const node of await other.status()) {
      expect(node).toMatchObject({
        noVote: 'config-mismatch',
        membersAgree: false,
        members: ['a', 'b', 'c'],
      });
      expect(node.reachable && node.warnings.join()).toContain('was set up');
    }
  });

  test('is reported if two names are swapped', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const swapped = named('bac');
    const error = await refusalOf(swapped);
    expect(error.message).toContain('node a was set up as b with [a, b, c]');
    expect(error.message).toContain('node b was set up as a with [a, b, c]');
    // Both sides have the same names, so the error lists no name that only one side has.
    expect(error.message).not.toContain('only');
  });

  test('is reported if bare clients name one server by two addresses', async () => {
    const bare = (host: string) =>
      new Redlock({
        nodes: [0, 1, 2].map((at) => {
          const client = new Redis(server(at).port, host, { lazyConnect: true });
          client.on('error', () => {});
          return client;
        }),
        keyPrefix: clients.keyPrefix,
      });
    const [byName, byNumber] = [bare('localhost'), bare('127.0.0.1')];
    await votingEverywhere(byNumber, service.nodes.slice(0, 3));
    const { message } = await refusalOf(byName);
    expect(message).toContain(`127.0.0.1:${server(0).port}`);
    expect(message).toContain(`localhost:${server(0).port}`);
    for (const lock of [byName, byNumber]) await lock.close();
  });

  test('of a minority does not hide behind "too few nodes voted"', async () => {
    await votingEverywhere(named('ab', service.nodes.slice(2)), service.nodes.slice(2, 4));
    // Two nodes belong to another service. The new nodes have no vote, because a first start needs
    // all nodes.
    const error = await refusalOf(named('abcde'));
    expect(error).toBeInstanceOf(NoQuorumError);
    expect(error.message).toMatch(/members differ: .* was set up as a with \[a, b\]/);
    expect(error.message).not.toContain('readmit --force');
  });

  test('never takes the vote of a node away, even if the other client readmits with force', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const before = await hashOf(0);
    expect(await named('abd').readmit({ node: 'a', force: true })).toMatchObject({
      ok: false,
      reason: expect.stringContaining('node a goes on as it was: config-mismatch'),
    });
    expect(await hashOf(0)).toEqual(before);
  });
});

describe('three of five servers that belong to another service', () => {
  test('are the error at once if the new nodes answer first', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const links = await Promise.all([0, 1, 2].map((at) => TcpProxy.start(server(at))));
    try {
      const five = named('abcde', [...links, server(3), server(4)]);
      for (const link of links) link.hold('toServer');
      const admin = [3, 4].map((at) => connect(server(at).port));
      const called = async () => {
        const told = await Promise.all(admin.map((one) => one.info('commandstats')));
        const scripts = /^cmdstat_eval(?:sha)?:calls=(\d+)/gm;
        return told.map((text) =>
          [...text.matchAll(scripts)].reduce((sum, [, calls]) => sum + Number(calls), 0),
        );
      };
      const before = await called();
      const waiting = five.acquire('y', { ttlMs: 1_000, waitMs: 60_000 });
      waiting.catch(() => {});
      await until(async () => (await called()).every((count, at) => count > (before[at] ?? 0)));
      links[0]?.release('toServer');
      links[1]?.release('toServer');
      links[2]?.release('toServer');
      const error = await waiting.catch((caught: unknown) => caught);
      expect(error).toMatchObject({ code: 'config-mismatch' });
      expect(String(error)).toContain('[a, b, c, d, e], ');
      expect(String(error)).toContain('[a, b, c] (only this client: d, e)');
      expect(String(error)).not.toContain('--force');
    } finally {
      for (const link of links) await link[Symbol.asyncDispose]();
    }
  });

  test('are the error without waiting for a node that hangs', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    // With this runtime no timer fires. So a wait for the hanging node would never end.
    const runtime = { ...systemRuntime, after: () => () => {} };
    const nodes = [...'abcde'].map((name, at) => ({ name, client: connect(server(at).port) }));
    const five = new Redlock({ nodes, keyPrefix: clients.keyPrefix }, runtime);
    await server(4).pause();
    await expect(five.acquire('y', { ttlMs: 1_000, waitMs: 60_000 })).rejects.toMatchObject({
      code: 'config-mismatch',
    });
  });

  test('are the error if the other two are down, although those fail first', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const closed = (port: number): Redis => {
      const client = connect(port);
      if (port !== server(3).port && port !== server(4).port) return client;
      client.disconnect();
      return client;
    };
    const five = named('abcde', service.nodes, closed);
    expect(await five.tryAcquire('y', { ttlMs: 60_000 })).toMatchObject({
      ok: false,
      reason: 'config-mismatch',
      hint: expect.stringContaining('(only this client: d, e)'),
    });
  });

  test('are the error if only the readmission sees them: of four nodes, two are new and two are not', async () => {
    await votingEverywhere(named('ab'), service.nodes.slice(0, 2));
    // The client asks all four nodes, but the proxies hold the answers of the two used ones.
    const links = await Promise.all([0, 1].map((at) => TcpProxy.start(server(at))));
    try {
      const four = named('abcd', [...links, server(2), server(3)]);
      for (const link of links) link.hold('toClient');
      const attempt = four.tryAcquire('y', { ttlMs: 60_000 });
      // The acquisition has failed because of the two new nodes. Then the client inspects all
      // nodes.
      await until(
        async () =>
          (await connect(server(2).port).hget(`${clients.keyPrefix}node`, 'seen_history')) !== null,
      );
      for (const link of links) link.release('toClient');
      expect(await attempt).toMatchObject({
        ok: false,
        reason: 'config-mismatch',
        retryAfterMs: 0,
        hint: expect.stringContaining(
          'nodes a and b were set up with [a, b] (only this client: c, d)',
        ),
      });
    } finally {
      for (const link of links) await link[Symbol.asyncDispose]();
    }
  });
});

const FUTURE = STORAGE_VERSION + 1;

/** A client of a library with another storage version. Only the version in its requests differs. */
function ofVersion(version: number): (port: number) => Redis {
  return (port) => {
    const client = connect(port);
    for (const name of ['evalsha', 'eval'] as const) {
      const send = client[name].bind(client);
      client[name] = async (...sent: unknown[]): Promise<unknown> => {
        const membersAt = 2 + Number(sent[1]);
        const members = String(sent[membersAt]).replace(/^\d+ /, `${version} `);
        return Reflect.apply(send, client, sent.with(membersAt, members));
      };
    }
    return client;
  };
}

describe('another storage version', () => {
  test('on the nodes makes them refuse this client, with both versions in the error, and nothing is changed', async () => {
    const future = named('abc', service.nodes, ofVersion(FUTURE));
    await votingEverywhere(future, service.nodes.slice(0, 3));
    await using lease = await future.acquire('x', { ttlMs: 60_000 });
    // Waits until the client has nothing more to write.
    const isHeld = async (at: number): Promise<boolean> =>
      (await hashOf(at))[`${clients.keyPrefix}queue:x`]?.includes(lease.owner) === true;
    await until(async () => (await Promise.all([0, 1, 2].map(isHeld))).every(Boolean));
    const before = await Promise.all([0, 1, 2].map(hashOf));
    expect(before[0]).toMatchObject({ name: 'a', names: '["a","b","c"]' });
    expect(before[0]?.members).toMatch(new RegExp(`^${FUTURE} [0-9a-f]{40}$`));

    const present = named('abc');
    const told = new RegExp(
      `storage versions differ: this client has ${STORAGE_VERSION}, nodes . and . (and . )?were set up with ${FUTURE}; .*docs/storage-versions.md`,
    );
    const error = await refusalOf(present);
    expect(error).toMatchObject({ code: 'wrong-version', message: expect.stringMatching(told) });
    expect(error.nodes.find(({ answer }) => answer === 'wrong-version')).toMatchObject({
      storageVersion: FUTURE,
    });
    const held = { resource: 'x', owner: lease.owner, token: lease.token };
    await expect(present.extend(held, 1_000)).rejects.toMatchObject({ code: 'wrong-version' });
    expect(await present.release(held)).toBe('unknown');
    for (const options of [{}, { force: true }, { node: 'b' }, { node: 'b', force: true }]) {
      expect(await present.readmit(options)).toMatchObject({
        ok: false,
        reason: expect.stringContaining('wrong-version'),
      });
    }
    for (const node of await present.status()) {
      expect(node).toMatchObject({
        noVote: 'wrong-version',
        storageVersion: FUTURE,
        members: null,
      });
    }
    expect(await Promise.all([0, 1, 2].map(hashOf))).toEqual(before);
    expect(lease.remainingMs()).toBeGreaterThan(1_000);
  });

  test('of a client makes the nodes of this version refuse that client', async () => {
    await votingEverywhere(named('abc'), service.nodes.slice(0, 3));
    const before = await Promise.all([0, 1, 2].map(hashOf));
    const future = named('abc', service.nodes, ofVersion(FUTURE));
    expect(await refusalOf(future)).toMatchObject({ code: 'wrong-version' });
    expect(await future.readmit({ force: true })).toMatchObject({ ok: false });
    expect(await Promise.all([0, 1, 2].map(hashOf))).toEqual(before);
  });

  test('has nodes whose other fields this version cannot read', async () => {
    const admin = [0, 1, 2].map((at) => connect(server(at).port));
    for (const one of admin) {
      await one.hset(`${clients.keyPrefix}node`, {
        members: `${FUTURE} something else`,
        roster: 'not a roster',
        generation: 'many',
        names: '{',
      });
      await one.set(`${clients.keyPrefix}queue:y`, 'no queue');
    }
    const lock = named('abc');
    expect(await refusalOf(lock)).toMatchObject({ code: 'wrong-version' });
    expect(await lock.status()).toMatchObject([
      { reachable: true, noVote: 'wrong-version', storageVersion: FUTURE },
      { reachable: true, noVote: 'wrong-version', storageVersion: FUTURE },
      { reachable: true, noVote: 'wrong-version', storageVersion: FUTURE },
    ]);
  });

  test('is 0 for nodes that were used before versions were kept', async () => {
    for (const at of [0, 1, 2]) {
      await connect(server(at).port).hset(`${clients.keyPrefix}node`, 'members', 'a'.repeat(40));
    }
    expect(await refusalOf(named('abc'))).toMatchObject({
      code: 'wrong-version',
      message: expect.stringMatching(/were set up with 0/),
    });
  });
});

describe('a replica that can be written', () => {
  test('does not count as a node: it is not readmitted, has no vote, and errors say that it is a replica', async () => {
    await using pair = await startLocalRedis(2, { args: ['--repl-diskless-sync-delay', '0'] });
    const [master, replica] = pair.nodes as unknown as readonly [LocalRedisNode, LocalRedisNode];
    const admin = connect(replica.port);
    await admin.config('SET', 'replica-read-only', 'no');
    await admin.replicaof('127.0.0.1', master.port);
    await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
    expect(await admin.set('can-be-written', '1')).toBe('OK');

    const lock = named('abc', [server(0), server(1), replica]);
    const attempt = await lock.tryAcquire('x', { ttlMs: 1_000 });
    expect(attempt).toMatchObject({ ok: false, reason: 'no-quorum' });
    expect(attempt.ok ? '' : attempt.hint).toContain('c (not-master: its server is a slave)');
    expect(await lock.readmit({ node: 'c', force: true })).toMatchObject({
      ok: false,
      reason: expect.stringContaining('not-master: its server is a slave'),
    });
    expect(await admin.exists(`${clients.keyPrefix}node`)).toBe(0);
    // An operator may give up the replica, because the other two nodes are a majority.
    expect(await lock.readmit({ force: true })).toEqual({ ok: true });
    const lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 10_000 });
    expect((await lock.status())[2]).toMatchObject({
      name: 'c',
      reachable: true,
      role: 'slave',
      noVote: 'not-master',
      warnings: expect.arrayContaining([expect.stringContaining('must be a master')]),
    });
    await lease.release();
    await server(1).pause();
    const refused = await lock.acquire('x', { ttlMs: 300 }).catch((caught: unknown) => caught);
    expect(refused).toMatchObject({ code: 'no-quorum' });
    expect((refused as QuorumError).nodes[2]).toMatchObject({
      answer: 'not-master',
      role: 'slave',
    });
  });

  test('has no vote, even if an earlier version of the library has readmitted it, or it was a master', async () => {
    await using own = await startLocalRedis(1);
    const [node] = own.nodes as unknown as readonly [LocalRedisNode];
    const lock = named('a', [node]);
    await votingEverywhere(lock, [node]);
    const admin = connect(node.port);
    await admin.config('SET', 'replica-read-only', 'no');
    await admin.replicaof('127.0.0.1', 1);
    // Under such a history, earlier versions of this library readmitted a replica.
    const replid = /master_replid:(\w+)/.exec(await admin.info('replication'))?.[1];
    for (const history of [replid, `slave${replid}`]) {
      await admin.hset(`${clients.keyPrefix}node`, { history, seen_history: history });
      const error = await lock.acquire('y', { ttlMs: 1_000 }).catch((caught: unknown) => caught);
      expect(error).toMatchObject({
        code: 'no-quorum',
        nodes: [{ answer: 'not-master', role: 'slave' }],
      });
    }
    await admin.replicaof('NO', 'ONE');
    await votingEverywhere(lock, [node]);
  });
});
