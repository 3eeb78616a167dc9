import type { Look, Observed, Recorder, Vote } from '../simulation/recorder.ts';

/**
 * An event of spec/Trace.tla. An array stands for a set, and `roster` is an index into `Rosters`.
 */
export interface TraceEvent {
  readonly do: string;
  readonly n?: string;
  readonly a?: number;
  readonly r?: number;
  readonly token?: number;
  readonly [field: string]: Value | undefined;
}

type Value = string | number | boolean | readonly Value[] | { readonly [name: string]: Value };
type Incarnation = { readonly name: number; readonly gen: number };

export interface Trace {
  readonly seed: number;
  readonly events: readonly TraceEvent[];
}

/** Larger differences between numbers are shortened to this one, because TLC has 32 bits. */
const GAP = 8;
/** Fields with tokens. Their numbers are made smaller together, so that they keep their order. */
const TOKENS = ['token', 'chosen', 'number', 'max', 'floor'];

/** The rosters of several traces, without duplicates. */
export class Rosters {
  readonly list: (readonly Incarnation[])[] = [];
  readonly #places = new Map<string, number>();

  /** @returns the place, from 1 */
  placeOf(roster: readonly Incarnation[]): number {
    const key = JSON.stringify(roster);
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    this.#places.set(key, this.list.push(roster));
    return this.list.length;
  }
}

/** Makes a trace of what was recorded in the world of a seed. */
export function traceOf(
  seed: number,
  { observed }: Recorder,
  nodes: readonly string[],
  rosters: Rosters,
): Trace {
  const builder = new Builder(observed, nodes);
  const { events } = builder;
  const tokens = compressed(events.flatMap((event) => TOKENS.map((field) => event[field])));
  const entries = (event: Draft) =>
    incarnationsIn(String(event.roster ?? ''), nodes, builder.names);
  const generations = compressed(
    events.flatMap((event) => [
      event.gen,
      ...(event.nominations ?? []).map(({ gen }) => gen),
      ...entries(event).map(({ gen }) => gen),
    ]),
  );
  return {
    seed,
    events: events.map((event) => {
      const { nominations, gen, roster, ...rest } = event;
      const own = TOKENS.flatMap((field) => {
        const value = event[field];
        return value === undefined ? [] : [[field, tokens(Number(value))]];
      });
      const known = entries(event).map((one) => ({ ...one, gen: generations(one.gen) }));
      return {
        ...rest,
        ...Object.fromEntries(own),
        ...(gen === undefined ? {} : { gen: generations(gen) }),
        ...(roster === undefined ? {} : { roster: rosters.placeOf(known) }),
        ...(nominations
          ? { nominations: nominations.map((one) => ({ ...one, gen: generations(one.gen) })) }
          : {}),
      };
    }),
  };
}

interface DraftNomination {
  readonly [name: string]: Value;
  readonly node: string;
  readonly name: number;
  readonly gen: number;
}

interface Draft {
  readonly do: string;
  readonly gen?: number;
  readonly roster?: string;
  readonly nominations?: readonly DraftNomination[];
  readonly [field: string]: Value | undefined;
}

/** Numbers what was observed: the acquisitions, the rounds and the incarnations of each node. */
class Builder {
  readonly events: Draft[] = [];
  /** For each node, the places of its incarnations' names in their order, from 1. */
  readonly names: ReadonlyMap<string, ReadonlyMap<string, number>>;
  readonly #nodes: readonly string[];
  readonly #rounds = new Map<Look, number>();
  /** The floor on which the client has decided, by round of inspections. */
  readonly #floors: ReadonlyMap<Look, number>;
  /** The round of readmission that uses each inspection. */
  readonly #usedBy = new Map<Observed, number>();
  readonly #owners = new Map<string, { a: number; client: string; tokens: Set<number> }>();

  constructor(observed: readonly Observed[], nodes: readonly string[]) {
    this.#nodes = nodes;
    this.names = new Map(nodes.map((node) => [node, placesOfNames(observed, node)]));
    const decided = observed.filter((one) => one.do === 'decide');
    this.#floors = new Map(decided.map(({ look, floor }) => [look, floor]));
    for (const one of observed) if (one.do === 'plan') this.#begin(one.look);
    for (const one of observed) this.#add(one);
  }

  /** Finds the inspections that a round of readmission uses. */
  #begin(look: Look): void {
    const round = this.#rounds.size + 1;
    this.#rounds.set(look, round);
    const { known } = this.#isForAll(look) && look.before ? look.before : look;
    for (const seen of known.values()) this.#usedBy.set(seen, round);
  }

  /**
   * True if every node is nominated. Before that, the client has inspected all nodes twice and seen
   * the same. So at some moment between, all nodes were as it saw them.
   */
  #isForAll({ before, nominations, known }: Look): boolean {
    if (nominations?.length !== this.#nodes.length) return false;
    return this.#nodes.every((node) => {
      const [one, other] = [before?.known.get(node), known.get(node)];
      if (!one || !other) return false;
      return (['name', 'gen', 'voting', 'roster'] as const).every((key) => one[key] === other[key]);
    });
  }

  #add(one: Observed): void {
    switch (one.do) {
      case 'acquire':
      case 'confirm':
      case 'backfill':
        this.#vote(one);
        return;
      case 'win': {
        const { client, token } = one;
        const owners = [...this.#owners.values()];
        const among = owners.filter((own) => own.client === client && own.tokens.has(token));
        this.events.push({ do: 'win', among: among.map(({ a }) => a), token });
        return;
      }
      case 'look':
      case 'plan':
        if (one.look.nominations && this.#isForAll(one.look) === (one.do === 'look')) {
          this.#plan(one.look, one.look.nominations);
        }
        return;
      case 'inspect': {
        const r = this.#usedBy.get(one) ?? 0;
        this.events.push({ ...one, name: this.#name(one.n, one.name), r });
        return;
      }
      case 'promise':
      case 'decide':
      case 'admit': {
        const { look, ...rest } = one;
        const r = this.#rounds.get(look) ?? 0;
        const named = 'name' in rest ? { name: this.#name(rest.n, rest.name) } : {};
        this.events.push({ ...rest, ...named, r });
        return;
      }
      default:
        this.events.push({ ...one });
    }
  }

  #vote({ owner, client, n, wanted, token, ...voter }: Vote): void {
    let own = this.#owners.get(owner);
    if (!own) {
      own = { a: this.#owners.size + 1, client, tokens: new Set() };
      this.#owners.set(owner, own);
      this.events.push({ do: 'begin', a: own.a });
    }
    const { a, tokens } = own;
    tokens.add(token);
    const asked =
      voter.do === 'confirm'
        ? { chosen: wanted }
        : voter.do === 'backfill'
          ? { number: wanted }
          : {};
    this.events.push({ ...voter, name: this.#name(n, voter.name), n, a, token, ...asked });
  }

  #plan(look: Look, nominations: NonNullable<Look['nominations']>): void {
    const list = nominations.map(({ node, name, gen }) => {
      const n = this.#nodes[node] ?? '';
      return { node: n, name: this.#name(n, name), gen };
    });
    const floor = this.#floors.get(look) ?? 0;
    this.events.push({ do: 'plan', r: this.#rounds.get(look) ?? 0, nominations: list, floor });
  }

  #name(node: string, name: string): number {
    return this.names.get(node)?.get(name) ?? -1;
  }
}

/** TLC cannot compare strings, so numbers in the same order stand for names. 0 stands for none. */
function placesOfNames(observed: readonly Observed[], node: string): Map<string, number> {
  const names = observed.flatMap((one) =>
    one.do === 'inspect' && one.n === node ? [one.name] : [],
  );
  return new Map(['', ...new Set(names.toSorted())].map((name, place) => [name, place]));
}

function incarnationsIn(
  roster: string,
  nodes: readonly string[],
  names: ReadonlyMap<string, ReadonlyMap<string, number>>,
): Incarnation[] {
  const entries = roster === '' ? [] : roster.split(',');
  return nodes.map((node, at) => {
    const [gen = '0', name = ''] = (entries[at] ?? '0:').split(':');
    return { name: names.get(node)?.get(name) ?? -1, gen: Number(gen) };
  });
}

/** Maps these numbers to smaller ones in the same order. Differences up to `GAP` stay. */
function compressed(values: readonly (Value | undefined)[]): (value: number) => number {
  const numbers = values.filter((value) => typeof value === 'number');
  const sorted = [...new Set([0, ...numbers])].toSorted((x, y) => x - y);
  const places = new Map<number, number>();
  let [last, place] = [0, 0];
  for (const number of sorted) {
    place += Math.min(GAP, number - last);
    last = number;
    places.set(number, place);
  }
  return (value) => places.get(value) ?? -1;
}
