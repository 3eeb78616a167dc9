import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Random } from '../simulation/random.ts';
import {
  DISTURBANCES,
  FAILOVERS,
  hadReplica,
  halves,
  LOSSES,
  splitBrain,
} from './harness/redlock-faults.js';
import { judge } from './harness/redlock-history.js';
import {
  minorityOf,
  PATIENCE_MS,
  RESUME_LIMIT_MS,
  type Site,
  TTL_MS,
  World,
  within,
} from './harness/redlock-world.js';

const CLIENTS_PER_DOOR = 2;
const ROUNDS = Number(process.env.FENCED_ROUNDS ?? 3);
const seed = Number(process.env.FENCED_SEED ?? 20_261_121);

// Each test makes another fault. The servers, the clients and their history go on from test to
// test.
describe.each([3, 5])('with %i nodes', (nodeCount) => {
  const minority = minorityOf(nodeCount);
  const random = new Random(seed, `faults of ${nodeCount}`);
  let world: World;
  let stopper: Promise<void>;
  let isOver = false;

  beforeAll(async () => {
    world = await World.start(nodeCount, CLIENTS_PER_DOOR);
    await within(PATIENCE_MS, 'the first acquisitions', () => world.history.length > 20);
    stopper = stopClientsNowAndThen();
  });
  afterAll(async () => {
    isOver = true;
    await stopper;
    await world[Symbol.asyncDispose]();
  });
  afterEach(() => {
    // A test that failed may have left some doors shut.
    open(world.sites);
    const told = judge(world.history);
    expect(told).toEqual({ verdict: 'grows', acquisitions: world.history.length });
  });

  describe(`tokens grow, and within ${RESUME_LIMIT_MS} ms locks are taken and all nodes vote:`, () => {
    test.each(Object.entries(DISTURBANCES))(
      '%s',
      async (_, fault) => {
        const sites = chosen(world.sites, minority, random);
        await Promise.all(sites.map((site) => fault(site, world)));
        await recovered();
      },
      2 * PATIENCE_MS,
    );

    test.each(Object.entries({ ...LOSSES, ...FAILOVERS }))(
      'the only node that knows of the latest tokens: %s',
      async (name, fault) => {
        const [site, ...others] = chosen(world.sites, nodeCount, random);
        if (!site) throw new Error('there are sites');
        if (name in FAILOVERS) {
          await hadReplica(site, world);
          await recovered();
        }
        const [before, after] = halves(others);
        shut(after);
        await world.untilAcquired(10);
        await fault(site, world);
        open(after);
        shut(before);
        await world.untilTried(2);
        open(before);
        await recovered();
      },
      3 * PATIENCE_MS,
    );

    test(
      'a split brain: each half of the clients reaches another master, and half of the other nodes',
      async () => {
        const [site] = chosen(world.sites, 1, random);
        if (!site) throw new Error('there are sites');
        await hadReplica(site, world);
        await recovered();
        await splitBrain(site, world);
        await recovered();
      },
      2 * PATIENCE_MS,
    );

    test('all nodes wiped together', () =>
      everybody((site) => site.server.kill().then(() => site.server.start('none'))));

    test('all nodes restarted with their data', () =>
      everybody((site) => site.server.kill().then(() => site.server.start())));
  });

  test('a client with other nodes is refused and disturbs no other client', async () => {
    const [first, ...rest] = world.sites;
    const swapped = rest.map(({ name }, at) => ({ name, doors: world.sites[at]?.doors ?? [] }));
    const named = [{ name: first?.name ?? '', doors: rest.at(-1)?.doors ?? [] }, ...swapped];
    await using few = await world.startClient(0, world.sites.slice(0, 1));
    await using other = await world.startClient(1, named);
    for (const { id, failures } of [few, other]) {
      const refusals = () => failures.filter(({ failed }) => failed === 'config-mismatch').length;
      await within(PATIENCE_MS, 'refusals', () => refusals() > 20);
      await world.untilAcquired(20);
      expect(world.history.filter(({ client }) => client === id)).toEqual([]);
    }
    await recovered();
  });

  test(
    `${ROUNDS} rounds of random faults of a minority of the nodes (seed ${seed})`,
    async () => {
      const story: string[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const sites = chosen(world.sites, minority, random);
        await Promise.all(
          sites.map((site) => {
            const [name, fault] = random.pick(
              Object.entries({ ...DISTURBANCES, ...LOSSES, ...FAILOVERS }),
            );
            story.push(`${site.name}: ${name}`);
            return fault(site, world);
          }),
        );
        await recovered();
        expect(judge(world.history), story.join('\n')).toMatchObject({ verdict: 'grows' });
      }
    },
    Math.max(60_000, ROUNDS * 20_000),
  );

  async function everybody(fault: (site: Site) => Promise<void>): Promise<void> {
    await Promise.all(world.sites.map(fault));
    await recovered();
  }

  async function recovered(): Promise<void> {
    await Promise.all([world.untilAcquired(5), world.untilVoting()]);
  }

  async function stopClientsNowAndThen(): Promise<void> {
    const random = new Random(seed, `pauses of ${nodeCount}`);
    while (!isOver) {
      const { worker } = random.pick(world.clients);
      await worker.pause();
      await sleep(TTL_MS * 1.5);
      await worker.wake();
      await sleep(TTL_MS);
    }
  }
});

/** Cuts all clients off from these sites. */
function shut(sites: readonly Site[]): void {
  for (const door of sites.flatMap(({ doors }) => doors)) door.shut();
}

function open(sites: readonly Site[]): void {
  for (const door of sites.flatMap(({ doors }) => doors)) door.accept();
}

/** Returns `count` of the items, in random order. */
function chosen<T>(from: readonly T[], count: number, random: Random): T[] {
  return from
    .map((value) => ({ value, key: random.unit() }))
    .sort((a, b) => a.key - b.key)
    .slice(0, count)
    .map(({ value }) => value);
}
