import fc from 'fast-check';
import type { ModelCommand } from './node-model.ts';

// All times are multiples of a unit, which is far longer than a sequence takes. The test compares
// remaining times in units. So model and real server agree, although the server's clock runs on.
export const UNIT_MS = 1_000_000;

/** One step of a sequence, on node `at`. */
export type Step =
  | {
      readonly do: 'script';
      readonly at: number;
      readonly members: string;
      readonly calls: readonly Call[];
      /** True if the node has reached `maxmemory`. */
      readonly isFull: boolean;
    }
  /**
   * Time passes: keys, leases and recovery waits end this much sooner. If it is negative, the
   * clocks are set back.
   */
  | { readonly do: 'wait'; readonly units: number }
  /**
   * A lease ends early, a resource is forgotten, or a wait queue or one of the node's hashes is
   * evicted. Or the node has another storage version.
   */
  | {
      readonly do: 'lose';
      readonly at: number;
      readonly what: 'lock' | 'record' | 'queue' | 'node' | 'before' | 'version';
      readonly resource: string;
    }
  | { readonly do: 'flush'; readonly at: number }
  /** A master becomes a replica that accepts writes, or the reverse. */
  | { readonly do: 'role'; readonly at: number }
  /**
   * The other process gets the keys of this one, and so is another incarnation of the same data.
   */
  | { readonly do: 'move'; readonly from: number };

interface Call {
  readonly command: ModelCommand;
  readonly keys: readonly string[];
  readonly values: readonly (string | number)[];
}

const resources = ['r', 'ü€😀', 'a\0b\r\n', '{x}:lock:*', ' ', '0'];
const owners = ['o1', 'o2', 'o3'];
const edges = ['1', '5', '33', '1763690000000000', '9007199254740990', '9007199254740991'];

const at = fc.nat(1);
const owner = fc.constantFrom(...owners);
const resource = fc.oneof(
  { weight: 6, arbitrary: fc.constant('r') },
  fc.constantFrom(...resources),
);
const set = fc.uniqueArray(resource, { minLength: 1, maxLength: 3 });
const ttl = fc.integer({ min: 1, max: 6 }).map((units) => units * UNIT_MS);
const fenceTtl = fc.integer({ min: 1, max: 9 }).map((units) => units * UNIT_MS);
const members = fc.oneof(
  { weight: 30, arbitrary: fc.constant('1 m1') },
  fc.constantFrom('1 m2', '2 m1'),
);
const token = fc.oneof(
  { weight: 5, arbitrary: fc.integer({ min: 1, max: 40 }).map(String) },
  fc.constantFrom(...edges),
  fc.bigInt({ min: 1n, max: 2n ** 53n - 1n }).map(String),
);
const generation = fc.integer({ min: 1, max: 6 });
/** The beginning of a name. If the node's incarnation begins so, the test uses its whole name. */
const ownIncarnation = owner.map((name) => `incarnation-${name}`);
const longest = fc.integer({ min: 0, max: 6 }).map((units) => units * UNIT_MS);
const incarnation = fc.oneof(
  fc.constant('0:'),
  fc.tuple(generation, owner).map(([gen, name]) => `${gen}:${name}`),
);
const roster = fc.array(incarnation, { minLength: 3, maxLength: 3 }).map((list) => list.join(','));
const nominations = fc
  .array(fc.tuple(fc.integer({ min: 1, max: 3 }), owner, generation, generation), {
    minLength: 1,
    maxLength: 3,
  })
  .map((list) => list.flat());

const queuesOf = (names: readonly string[]): string[] => names.map((name) => `queue:${name}`);
const enqueuedMs = fc.constantFrom(1, 2, 2, 3.5, 1763690000000.25);
const channel = fc.oneof({ weight: 4, arbitrary: fc.constant('own') }, fc.constant('others'));
const followersMax = fc.oneof({ weight: 3, arbitrary: fc.nat(3) }, fc.constant(16));
const processId = fc.constantFrom('o', 'o1', 'o2');
const position = fc.oneof(
  { weight: 2, arbitrary: fc.tuple(enqueuedMs, channel, ttl, followersMax, processId, fc.nat(3)) },
  fc.constant([]),
);

/** The name of the node and the names of all nodes, as at its setup. */
const setUp = ['a', '["a","ü\u20ac"]'];

// An ADMIT names a replication id and an incarnation, mostly the present ones of the node.
const admit = fc
  .tuple(at, ownIncarnation, generation, roster, token, longest, fc.constantFrom(0, 0, 0, 1, 2))
  .map(([historyOf, name, gen, roster, floor, longestMs, recoveryWait]) => ({
    command: 'admit' as const,
    keys: [],
    values: [
      `history-${historyOf}`,
      name,
      gen,
      roster,
      floor,
      longestMs,
      5 * UNIT_MS,
      recoveryWait * UNIT_MS,
      ...setUp,
    ],
  }));

const nextSet = fc.constantFrom(['[p,[a]]', '["a"]'], ['[q,[b]]', '["b"]']);
const leases = fc.tuple(ownIncarnation, fc.integer({ min: 1, max: 2 })).map(([name, hash]) => ({
  command: 'leases' as const,
  keys: [],
  values: [name, hash, '0', 500],
}));
const carry = set.chain((names) =>
  fc
    .tuple(
      ownIncarnation,
      fc.array(fc.tuple(owner, ttl, token), {
        minLength: names.length,
        maxLength: names.length,
      }),
    )
    .map(([name, records]) => ({
      command: 'carry' as const,
      keys: queuesOf(names),
      values: [name, ...records.flat()],
    })),
);

const call = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(set, position, owner, ttl, fenceTtl)
      .map(([names, place, name, ...values]) => ({
        command: 'acquire' as const,
        keys: [...queuesOf(names), ...(place.length > 0 ? [`waiter:${name}`] : [])],
        values: [name, ...values, ...place],
      })),
  },
  {
    weight: 4,
    arbitrary: fc.tuple(set, owner, token, fenceTtl).map(([names, ...values]) => ({
      command: 'confirm' as const,
      keys: queuesOf(names),
      values,
    })),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(set, fc.tuple(owner, ttl, token, fenceTtl), fc.option(ownIncarnation))
      .map(([names, values, incarnation]) => ({
        command: 'backfill' as const,
        keys: queuesOf(names),
        values: incarnation === null ? values : [...values, incarnation],
      })),
  },
  {
    weight: 3,
    arbitrary: fc.tuple(set, owner, enqueuedMs, channel, ttl).map(([names, name, ...place]) => ({
      command: 'enqueue' as const,
      keys: [...queuesOf(names), `waiter:${name}`],
      values: [name, ...place],
    })),
  },
  fc.tuple(set, owner, ttl, token).map(([names, ...values]) => ({
    command: 'extend' as const,
    keys: queuesOf(names),
    values,
  })),
  {
    weight: 3,
    arbitrary: fc
      .tuple(set, owner, fc.option(fc.subarray(owners)))
      .map(([names, name, waited]) => ({
        command: 'release' as const,
        keys: [...queuesOf(names), ...(waited ?? []).map((one) => `waiter:${one}`)],
        values: waited ? [name, waited.length] : [name],
      })),
  },
  owner.map((name) => ({ command: 'inspect' as const, keys: [], values: [name] })),
  {
    weight: 2,
    arbitrary: fc.tuple(ownIncarnation, nominations).map(([name, nominated]) => ({
      command: 'promise' as const,
      keys: [],
      values: [name, ...setUp, 3, ...nominated],
    })),
  },
  fc
    .tuple(ownIncarnation, owner)
    .map((values) => ({ command: 'retire' as const, keys: [], values })),
  { weight: 2, arbitrary: admit },
  ttl.map((ms) => ({ command: 'limit' as const, keys: [], values: [ms] })),
  nextSet.map((values) => ({ command: 'seal' as const, keys: [], values })),
  fc
    .tuple(ownIncarnation, fc.nat(1), fc.constantFrom('[p,[a]]', '[q,[a]]'), owner)
    .map((values) => ({ command: 'prepare' as const, keys: [], values })),
  leases,
  { weight: 2, arbitrary: carry },
  fc.constant({ command: 'status' as const, keys: [], values: [] }),
);

const isFull = fc.oneof(
  { weight: 9, arbitrary: fc.constant(false) },
  { weight: 1, arbitrary: fc.constant(true) },
);
const scriptOf = (calls: fc.Arbitrary<Call[]>): fc.Arbitrary<Step> =>
  fc.record({ do: fc.constant('script' as const), at, members, calls, isFull });
// Two special cases: a node is sealed while it votes, and a node waits for a move.
const sealed = scriptOf(
  fc
    .tuple(nextSet, leases)
    .map(([values, then]) => [{ command: 'seal' as const, keys: [], values }, then]),
);
const awaits = scriptOf(
  fc
    .tuple(owner, ownIncarnation, owner, carry)
    .map(([name, incarnation, random, then]) => [
      { command: 'inspect' as const, keys: [], values: [name] },
      { command: 'retire' as const, keys: [], values: [incarnation, name] },
      { command: 'prepare' as const, keys: [], values: [incarnation, 1, '[p,[a]]', random] },
      then,
    ]),
);
const script = scriptOf(fc.array(call, { minLength: 1, maxLength: 3 }));
const admits = scriptOf(admit.map((one) => [one]));

// Commands for which the scripts have a fast path, alone and several at once.
const oneOf = resource.map((name) => [name]);
const usual = (names: fc.Arbitrary<string[]>): fc.Arbitrary<Call> =>
  fc.tuple(names, owner, ttl, fenceTtl).map(([all, ...values]) => ({
    command: 'acquire' as const,
    keys: queuesOf(all),
    values,
  }));
const undone = (names: fc.Arbitrary<string[]>): fc.Arbitrary<Call> =>
  fc.tuple(names, owner).map(([all, ...values]) => ({
    command: 'release' as const,
    keys: queuesOf(all),
    values,
  }));
const alone = scriptOf(fc.oneof(usual(oneOf), undone(oneOf)).map((one) => [one]));
const several = (one: fc.Arbitrary<Call>): fc.Arbitrary<Call[]> => {
  const count = { minLength: 2, maxLength: 5 };
  const apart = fc.uniqueArray(one, { ...count, selector: ({ keys }) => keys[0] });
  return fc.oneof({ weight: 4, arbitrary: apart }, fc.array(one, count));
};
const pair = fc.uniqueArray(resource, { minLength: 2, maxLength: 2 });
const atOnce = scriptOf(
  fc
    .tuple(
      fc.oneof({ weight: 4, arbitrary: several(usual(oneOf)) }, several(usual(pair))),
      fc.oneof({ weight: 4, arbitrary: several(undone(oneOf)) }, several(undone(pair))),
      fc.array(call, { maxLength: 2 }),
    )
    .chain((runs) => fc.shuffledSubarray(runs, { minLength: 1 }))
    .map((runs) => runs.flat())
    .filter((calls) => calls.length > 0),
);

export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 14, arbitrary: script },
  { weight: 5, arbitrary: admits },
  { weight: 1, arbitrary: sealed },
  { weight: 2, arbitrary: awaits },
  { weight: 14, arbitrary: alone },
  { weight: 14, arbitrary: atOnce },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      units: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: -8, max: -1 })),
    }),
  },
  fc.record({
    do: fc.constant('lose' as const),
    at,
    what: fc.constantFrom(
      'lock',
      'lock',
      'record',
      'record',
      'queue',
      'queue',
      'node',
      'node',
      'before',
      'before',
      'version',
    ),
    resource,
  }),
  fc.record({ do: fc.constant('move' as const), from: at }),
  { weight: 1, arbitrary: fc.record({ do: fc.constant('flush' as const), at }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('role' as const), at }) },
);

// Each sequence begins with votes for both processes. Otherwise few sequences would get a token.
export const opening: fc.Arbitrary<Step[]> = fc
  .tuple(roster, token, roster, token)
  .map(([rosterA, floorA, rosterB, floorB]) =>
    [
      [rosterA, floorA],
      [rosterB, floorB],
    ].flatMap(([roster, floor], where): Step[] => [
      {
        do: 'script',
        at: where,
        members: '1 m1',
        isFull: false,
        calls: [{ command: 'inspect', keys: [], values: ['o1'] }],
      },
      {
        do: 'script',
        at: where,
        members: '1 m1',
        isFull: false,
        calls: [
          {
            command: 'admit',
            keys: [],
            values: [
              `history-${where}`,
              'incarnation-o1',
              1,
              `${roster}`,
              `${floor}`,
              0,
              5 * UNIT_MS,
              0,
              ...setUp,
            ],
          },
        ],
      },
    ]),
  );
