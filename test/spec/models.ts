/** The finding of TLC. `steps` counts the states of the shortest counterexample. */
export type Verdict =
  | { readonly holds: true; readonly states: number }
  | { readonly holds: false; readonly property: string; readonly steps: number };

/** One exploration by TLC, and the verdict that it must reach. */
export interface Model {
  readonly name: string;
  readonly module: 'Tokens' | 'Scripted' | 'Store';
  readonly specification: string;
  readonly constants: Readonly<Record<string, string>>;
  readonly invariants: readonly string[];
  readonly properties: readonly string[];
  readonly symmetric: boolean;
  /** The protective step that is left out; `none` for the protocol as it is. */
  readonly mutant: string;
  readonly expected: Verdict;
}

type Setting = Omit<Model, 'name' | 'mutant' | 'expected'>;
type Row = readonly [setting: keyof typeof settings, mutant: string, expected: Verdict];

const tokens = {
  module: 'Tokens',
  specification: 'Spec',
  constants: {
    Nodes: '{n1, n2, n3}',
    Promoted: '{}',
    FailedOver: 'NoOne',
    Acquisitions: '{a1, a2}',
    Rounds: '{r1}',
    Looks: '{{n1, n2, n3}}',
    LossesMax: '0',
    ForgetsMax: '0',
    Followers: '0',
    NamesRise: 'TRUE',
    Again: 'FALSE',
    TokenMax: '4',
    NoOne: 'NoOne',
    Nobody: 'Nobody',
  },
  invariants: ['Growth', 'Unique'],
  properties: [],
  symmetric: true,
} as const satisfies Setting;

type TokenConstants = Partial<Record<keyof typeof tokens.constants, string>>;

function tokensWith(constants: TokenConstants): Setting {
  return { ...tokens, constants: { ...tokens.constants, ...constants } };
}

/** A setting for the module Scripted: the exploration begins with the script of this name. */
function beginningWith(script: string, constants: TokenConstants): Setting {
  const { constants: common, ...setting } = tokensWith({ Rounds: '{r1, r2}', ...constants });
  const own = { module: 'Scripted', specification: 'ScriptedSpec' } as const;
  return { ...setting, ...own, constants: { ...common, Script: `"${script}"` } };
}

function scripted<Name extends string>(name: Name, constants: TokenConstants) {
  return { [name]: beginningWith(name, constants) } as Record<Name, Setting>;
}

/** The nodes are numbers, because the script names them. So they are not interchangeable. */
function fiveNodes(constants: TokenConstants): Setting {
  const setting = beginningWith('two incarnations, one generation', {
    Nodes: '{1, 2, 3, 4, 5}',
    Rounds: '{1, 2, 3, 4, 5, 6}',
    Looks: '{{1, 2, 3, 4, 5}}',
    LossesMax: '5',
    TokenMax: '2',
    ...constants,
  });
  return { ...setting, symmetric: false };
}

/** After a failover of n1, each client reaches its old master or the promoted replica, p1. */
const oldMaster: TokenConstants = {
  Promoted: '{p1}',
  FailedOver: 'n1',
  Looks: '{{n1, n2, n3}, {p1, n2, n3}}',
};

function storeOf(way: string): Setting {
  return {
    module: 'Store',
    specification: 'Spec',
    constants: { Tokens: '{1, 2, 3}', Way: `"${way}"`, HistoryMax: '1' },
    invariants: ['Once', 'Truth', 'NoLostUpdate'],
    properties: ['Ratchet'],
    symmetric: false,
  };
}

const settings = {
  'no loss': tokensWith({ ForgetsMax: '1' }),
  'requests arrive again': tokensWith({ Again: 'TRUE' }),
  'hand-over': tokensWith({ Acquisitions: '{a1, a2, a3}', Followers: '1', TokenMax: '6' }),
  'a node restarts': tokensWith({ LossesMax: '1' }),
  'inspected one by one': tokensWith({
    LossesMax: '1',
    Looks: '{{n1}, {n2}, {n3}}',
    TokenMax: '3',
  }),
  'no node has memory': {
    ...tokensWith({ Rounds: '{r1, r2}', TokenMax: '3' }),
    specification: 'SpecWithoutMemory',
  },
  'an old master answers': tokensWith({ ...oldMaster, TokenMax: '3' }),
  ...scripted('a second node restarts', { LossesMax: '2', TokenMax: '3' }),
  ...scripted('a nomination is overtaken', {
    LossesMax: '2',
    Rounds: '{r1, r2, r3}',
    TokenMax: '3',
  }),
  ...scripted('inspected at different moments', {
    LossesMax: '2',
    Looks: '{{n1}, {n2}, {n3}, {n1, n2, n3}}',
    TokenMax: '3',
  }),
  ...scripted('an old master is counted', { ...oldMaster, LossesMax: '1', TokenMax: '3' }),
  'two incarnations, names rise': fiveNodes({}),
  'two incarnations, names fall': fiveNodes({ NamesRise: 'FALSE' }),
  update: storeOf('update'),
  claim: storeOf('claim'),
  put: storeOf('put'),
} as const satisfies Record<string, Setting>;

const violates = (property: string, steps: number): Verdict => ({ holds: false, property, steps });
const holdsIn = (states: number): Verdict => ({ holds: true, states });

const rows: readonly Row[] = [
  ['no loss', 'none', holdsIn(3_825)],
  ['no loss', 'no confirm round', violates('Unique', 9)],
  ['no loss', 'forgotten name begins below the highest token', violates('Unique', 11)],
  ['requests arrive again', 'none', holdsIn(7_663)],
  ['hand-over', 'none', holdsIn(3_403)],
  ['hand-over', 'successor without a token of its own', violates('Unique', 11)],
  ['hand-over', 'successor that came later', violates('Growth', 11)],
  ['a node restarts', 'none', holdsIn(247_055)],
  ['a node restarts', 'no readmission check', violates('Unique', 10)],
  ['a node restarts', 'floor not restored', violates('Unique', 16)],
  ['a node restarts', 'roster ignored', violates('Unique', 16)],
  ['a node restarts', 'last token preferred to the floor', violates('Unique', 16)],
  ['inspected one by one', 'none', holdsIn(20_539)],
  ['no node has memory', 'none', holdsIn(3_987)],
  ['no node has memory', 'floor below the clock', violates('Growth', 13)],
  ['an old master answers', 'none', holdsIn(8_482)],
  ['a second node restarts', 'none', holdsIn(26_870)],
  ['a second node restarts', 'roster not restored', violates('Unique', 23)],
  ['a nomination is overtaken', 'none', holdsIn(26_098)],
  ['a nomination is overtaken', 'promise whatever is nominated', violates('Unique', 26)],
  ['an old master is counted', 'none', holdsIn(14_890)],
  [
    'an old master is counted',
    'promises from superseded incarnations accepted',
    violates('Growth', 22),
  ],
  ['inspected at different moments', 'none', holdsIn(7_281)],
  // Without this step, a working majority could lose its votes. Tokens still grow, so it holds.
  ['inspected at different moments', 'no common moment', holdsIn(10_183)],
  ['two incarnations, names rise', 'none', holdsIn(121_105)],
  ['two incarnations, names rise', 'roster ties kept by place', violates('Unique', 55)],
  ['two incarnations, names fall', 'none', holdsIn(119_827)],
  ['update', 'none', holdsIn(4_066)],
  ['update', 'token not compared', violates('Ratchet', 7)],
  ['update', 'no condition', violates('Once', 5)],
  ['update', 'a refusal is believed', violates('Truth', 6)],
  ['update', 'a lost reply is called failed', violates('Truth', 5)],
  ['claim', 'none', holdsIn(78_051)],
  ['claim', 'token not compared', violates('Ratchet', 5)],
  ['claim', 'token beside the bytes', violates('Once', 4)],
  ['claim', 'read before the claim', violates('NoLostUpdate', 7)],
  // A token on the write alone does not protect what was read before.
  ['put', 'none', violates('NoLostUpdate', 7)],
];

export const models: readonly Model[] = rows.map(([setting, mutant, expected]) => ({
  ...settings[setting],
  name: mutant === 'none' ? setting : `${setting}, ${mutant}`,
  mutant,
  expected,
}));
