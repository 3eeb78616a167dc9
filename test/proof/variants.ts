import { patched } from '../simulation/sources.ts';

/** The proof without one protective step, or without one assumption. It must fail. */
export interface Variant {
  readonly name: string;
  readonly file: 'Roster' | 'Protocol';
  /** The action that the variant changes; null for a definition. */
  readonly action: string | null;
  readonly replace: readonly (readonly [before: string, after: string])[];
}

/** An action without some of its conditions. Each is removed with the arrow behind it. */
type Row = readonly [name: string, condition: string];

function without(action: string, rows: readonly Row[]): readonly Variant[] {
  return rows.map(([name, condition]) => ({
    name: `${action}: ${name}`,
    file: 'Protocol',
    action,
    replace: [[`    ${condition} ->\n`, '']],
  }));
}

/** An action, or null for a definition, with another effect. */
function changed(
  action: string | null,
  name: string,
  replace: Variant['replace'][number],
): Variant {
  return {
    name: action === null ? name : `${action}: ${name}`,
    file: 'Protocol',
    action,
    replace: [replace],
  };
}

const READS = 'memory s i = Some m';
const GONE = 'earlier incarnations go on after a first start';

export const variants: readonly Variant[] = [
  {
    name: 'entries are compared by generation only',
    file: 'Roster',
    action: null,
    replace: [
      [
        'earlier (x y : entry) := fst x < fst y \\/ (fst x = fst y /\\ snd x < snd y)',
        'earlier (x y : entry) := fst x < fst y',
      ],
      [
        'upto (x y : entry) := fst x < fst y \\/ (fst x = fst y /\\ snd x <= snd y)',
        'upto (x y : entry) := fst x <= fst y',
      ],
    ],
  },
  ...without('Begin', [['an owner id is used again', 'began s o = None']]),
  ...without('Appear', [
    ['a loss of memory keeps the name', 'memory s i = None'],
    ['an incarnation begins with a vote', 'votes m = false'],
  ]),
  ...without('Vote', [
    ['not one atomic script', READS],
    ['a node without a vote votes', 'votes m = true'],
    ['a sealed node votes', 'sealed_for m = None'],
    [GONE, 'not_replaced s i (generation m)'],
    ['a vote for no acquisition', 'began s o <> None'],
    ['numbers that were given before', '(forall x, wants o x = true -> bound m x < low)'],
    ['the range of tokens is empty', 'low <= high'],
  ]),
  changed('Vote', 'the highest number is not stored', ['Nat.max (highest m) high', 'highest m']),
  changed('Vote', 'the number is not stored for the resource', [
    'if wants o x then high else bound m x',
    'bound m x',
  ]),
  changed('Vote', 'without the roster', ['v_roster := knows m', 'v_roster := fun _ => (0, 0)']),
  ...without('Note', [
    ['not one atomic script', READS],
    ['the highest number falls', 'highest m <= t'],
    ['the number of a resource falls', '(forall x, bound m x <= b x)'],
  ]),
  ...without('Forget', [['not one atomic script', READS]]),
  changed('Forget', 'a forgotten name begins anew', [
    'if names x then highest m',
    'if names x then 0',
  ]),
  ...without('Promise', [
    ['not one atomic script', READS],
    ['a sealed node promises', 'sealed_for m = None'],
    [
      'under any generation',
      '(if votes m then g = generation m else nom (node_of i) = Some (g, i))',
    ],
    [GONE, 'not_replaced s i g'],
    ['an earlier nomination is accepted', '(forall n e, nom n = Some e -> upto (knows m n) e)'],
    [
      'another incarnation of the own node is accepted',
      '(forall e, nom (node_of i) = Some e -> snd e = i)',
    ],
  ]),
  changed('Promise', 'is not stored', [
    'fun n => match nom n with Some e => e | None => knows m n end',
    'knows m',
  ]),
  changed('Promise', 'without the highest number', ['p_highest := highest m', 'p_highest := 0']),
  changed('Promise', 'without the earlier roster', [
    'p_roster := knows m',
    'p_roster := fun _ => (0, 0)',
  ]),
  ...without('Decide', [
    ['too few promises', 'quorum S Q'],
    ['the promises need not be consistent', 'consistent_promises Q a'],
    ['without promises', '(forall n, Q n -> promised s (a n))'],
    ['promises of other nodes', '(forall n, Q n -> node_of (p_inc (a n)) = n)'],
    ['promises of nodes without a vote', '(forall n, Q n -> p_votes (a n) = true)'],
    ['promises of another round', '(forall n, Q n -> forall k, p_nominated (a n) k = nom k)'],
    ['the floor is below a promise', '(forall n, Q n -> p_highest (a n) <= f)'],
    ['the rosters are not inherited', '(forall n, Q n -> covered (p_roster (a n)) r)'],
  ]),
  ...without('FirstStart', [
    ['not all nodes are nominated', '(forall n, set_of n = S -> nom n <> None)'],
    ['not all nodes have promised', '(forall n, set_of n = S -> promised s (a n))'],
    ['promises of other nodes', '(forall n, set_of n = S -> node_of (p_inc (a n)) = n)'],
    [
      'promises of another round',
      '(forall n, set_of n = S -> forall k, p_nominated (a n) k = nom k)',
    ],
    ['the floor is below a promise', '(forall n, set_of n = S -> p_highest (a n) <= f)'],
    ['the roster lacks nominations', '(forall n e, nom n = Some e -> upto e (r n))'],
    [
      'before the move',
      "(forall A, awaits s S = Some A -> exists Q a', sealed_quorum s A S f Q a')",
    ],
    ['the assumptions hold on too few nodes', 'quorum S G'],
    [
      'the floor is below forgotten votes',
      `(forall v e, voted s v -> G (node_of (v_inc v)) -> nom (node_of (v_inc v)) = Some e ->
       v_inc v <> snd e -> earlier (vote_entry v) e -> v_high v <= f)`,
    ],
    [
      'the generations are below forgotten promises',
      `(forall p e, promised s p -> G (node_of (p_inc p)) -> nom (node_of (p_inc p)) = Some e ->
       p_inc p <> snd e -> earlier (promise_entry p) e ->
       forall n e1 e2, p_nominated p n = Some e1 -> nom n = Some e2 -> upto e1 e2)`,
    ],
    [
      'a sealed node has lost its data',
      `(forall p e, promised s p -> G (node_of (p_inc p)) -> nom (node_of (p_inc p)) = Some e ->
       p_inc p <> snd e -> earlier (promise_entry p) e -> p_sealed_for p = None)`,
    ],
  ]),
  ...without('Admit', [
    ['without a decision', 'decided s d'],
    ['another incarnation', 'd_nominated d (node_of i) = Some (g, i)'],
    ['a decision of another set', 'set_of (node_of i) = d_set d'],
    ['not one atomic script', READS],
    ['the highest number is below the floor', 'd_floor d <= t'],
    ['the last number is preferred to the floor', '(forall x, d_floor d <= b x)'],
    ['the roster is not restored', 'covered (d_roster d) r'],
    ['the highest number falls', 'highest m <= t'],
    ['the number of a resource falls', '(forall x, bound m x <= b x)'],
    ['the own roster is lost', 'covered (knows m) r'],
  ]),
  changed('Admit', 'ends a seal', ['sealed_for := sealed_for m', 'sealed_for := None']),
  ...without('Win', [
    ['too few votes', 'quorum S Q'],
    ['the votes need not be consistent', 'consistent_votes Q f'],
    ['without votes', '(forall n, Q n -> voted s (f n))'],
    ['votes of other nodes', '(forall n, Q n -> node_of (v_inc (f n)) = n)'],
    ['votes for other acquisitions', '(forall n, Q n -> v_owner (f n) = o)'],
    ['without CONFIRM', '(forall n, Q n -> v_high (f n) = high)'],
    ['tokens that were not reserved', '(forall n, Q n -> v_low (f n) <= low)'],
    ['the range of tokens is empty', 'low <= high'],
    ['an acquisition wins twice', '(forall w, won s w -> w_owner w <> o)'],
  ]),
  ...without('HandOver', [
    ['of no win', 'won s w'],
    ['the follower has not begun', 'began s o = Some t'],
    ['the follower came after the votes', '(forall n, w_quorum w n -> t < v_time (w_vote w n))'],
    ['of another resource', '(forall x, wants o x = true -> wants (w_owner w) x = true)'],
    [
      'the same token again',
      '(forall l, leased s l -> l_winner l = w_owner w -> l_token l < token)',
    ],
    ['a token that was not reserved', 'token <= w_high w'],
  ]),
  ...without('Prepare', [['the next set has started', '(forall d, decided s d -> d_set d <> B)']]),
  ...without('Seal', [
    ['not one atomic script', READS],
    ['a node without a vote counts', 'votes m = true'],
    ['a node is sealed for two sets', '(forall C, sealed_for m = Some C -> C = B)'],
    [GONE, 'not_replaced s i (generation m)'],
  ]),
  changed('Seal', 'is not stored', [
    'knows := knows m; sealed_for := Some B',
    'knows := knows m; sealed_for := sealed_for m',
  ]),
  changed('Seal', 'without the highest number', ['p_highest := highest m', 'p_highest := 0']),
  changed(null, 'too few nodes are sealed', [
    'quorum A Q /\\ consistent_promises Q a',
    'consistent_promises Q a',
  ]),
  changed(null, 'the answers to SEAL need not be consistent', [
    'quorum A Q /\\ consistent_promises Q a',
    'quorum A Q /\\ True',
  ]),
  changed(null, 'nodes that were sealed for another set count', [
    'p_sealed_for (a n) = Some B /\\',
    'True /\\',
  ]),
  changed(null, 'the floor is below an answer to SEAL', ['/\\ p_highest (a n) <= f.', '/\\ True.']),
];

/** @throws Error if a text to be replaced does not occur exactly once */
export function varied(source: string, { action, file, replace }: Variant): string {
  const patch = { file, replace };
  if (action === null) return patched(source, patch);
  const begins = source.indexOf(`\n| ${action} `);
  const ends = source.indexOf('\n\n', begins);
  return source.slice(0, begins) + patched(source.slice(begins, ends), patch) + source.slice(ends);
}
