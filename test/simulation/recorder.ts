import { nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import type { Machine } from './machine.ts';
import type { ModelCall, NodeModel, Reply } from './node-model.ts';

const [NODE_KEY] = nodeKeys('{fenced}:');

/** The facts by which a node is known to others: roster as text, in the order of the names. */
interface Identity {
  readonly gen: number;
  readonly name: string;
  readonly roster: string;
}

/** One round of inspections by a client: at most one request to each node. */
export interface Look {
  readonly before: Look | null;
  readonly nodes: Set<string>;
  /** By node: the inspection that the client knows. */
  readonly known: Map<string, Inspected>;
  /** The nominations, once the client asks for promises. */
  nominations: readonly Nomination[] | null;
  /** The nodes that are asked for promises. */
  readonly asked: Set<string>;
}

interface Nomination {
  readonly node: number;
  readonly name: string;
  readonly gen: number;
}

interface Inspected extends Identity {
  readonly do: 'inspect';
  readonly n: string;
  readonly voting: boolean;
  readonly max: number;
}

interface Promised extends Identity {
  readonly do: 'promise';
  readonly look: Look;
  readonly n: string;
  readonly voting: boolean;
  readonly max: number;
  /** True if the reply has reached the client. */
  counts: boolean;
}

export interface Vote extends Identity {
  readonly do: 'acquire' | 'confirm' | 'backfill';
  readonly client: string;
  readonly n: string;
  readonly owner: string;
  /** The token that the client asks for; 0 for ACQUIRE. */
  readonly wanted: number;
  readonly token: number;
}

/** A step as it was observed. */
export type Observed =
  | Vote
  | Inspected
  | { readonly do: 'refuse' | 'save' | 'forget'; readonly n: string }
  | ({ readonly do: 'restart'; readonly n: string } & State)
  /** A client has begun to inspect, or begins to ask for promises. */
  | { readonly do: 'look' | 'plan'; readonly look: Look }
  | Promised
  | { readonly do: 'decide'; readonly look: Look; readonly floor: number; readonly roster: string }
  | ({ readonly do: 'admit'; readonly look: Look; readonly n: string } & State)
  | { readonly do: 'win'; readonly client: string; readonly token: number };

/** A client's connection to a node. */
interface Sender {
  readonly computer: { readonly name: string };
  readonly machine: Machine;
}

interface State {
  readonly gen: number;
  readonly max: number;
  readonly floor: number;
  readonly roster: string;
}

/**
 * Records the steps of the protocol in one world: the commands that nodes carry out, and the
 * decisions of clients that nodes see.
 */
export class Recorder {
  readonly observed: Observed[] = [];
  readonly #stepsMax: number;
  readonly #looks = new Map<string, Look>();
  /** By request: the look that it belongs to. */
  readonly #lookOf = new Map<string, Look>();
  readonly #inspections = new Map<Reply, { readonly look: Look; readonly seen: Inspected }>();
  readonly #promises = new Map<Reply, Promised>();

  /** @param stepsMax the number of steps after which no more are needed */
  constructor(stepsMax: number) {
    this.#stepsMax = stepsMax;
  }

  get isFull(): boolean {
    return this.observed.length >= this.#stepsMax;
  }

  /** Notes requests that a client sends. */
  asked({ computer, machine }: Sender, calls: readonly ModelCall[]): void {
    for (const call of calls) {
      if (!['inspect', 'promise', 'admit'].includes(call.command)) continue;
      const key = keyOf(computer.name, machine, call);
      if (call.command === 'inspect') {
        if (!this.#lookOf.has(key)) this.#lookOf.set(key, this.#inspects(computer.name, machine));
        continue;
      }
      const look = this.#looks.get(computer.name);
      if (!look) throw new Error(`${call.command} before any INSPECT`);
      this.#lookOf.set(key, look);
      if (call.command === 'promise') this.#plans(look, machine, call);
      else if (!this.observed.some((one) => one.do === 'decide' && one.look === look)) {
        const [roster = '', floor] = call.values.slice(3);
        this.observed.push({ do: 'decide', look, floor: Number(floor), roster });
      }
    }
  }

  #inspects(client: string, { name }: Machine): Look {
    const last = this.#looks.get(client) ?? null;
    if (last && !last.nodes.has(name)) {
      last.nodes.add(name);
      return last;
    }
    const nodes = new Set([name]);
    const look = {
      before: last,
      nodes,
      known: new Map(),
      nominations: null,
      asked: new Set<string>(),
    };
    this.#looks.set(client, look);
    this.observed.push({ do: 'look', look });
    return look;
  }

  #plans(look: Look, { name }: Machine, { values }: ModelCall): void {
    look.asked.add(name);
    if (look.nominations) return;
    const nominations: Nomination[] = [];
    for (let at = 4; at < values.length; at += 4) {
      const [place, nominated = '', gen] = values.slice(at);
      nominations.push({ node: Number(place) - 1, name: nominated, gen: Number(gen) });
    }
    look.nominations = nominations;
    this.observed.push({ do: 'plan', look });
  }

  /** Notes a call that a node has carried out. */
  carriedOut({ computer, machine }: Sender, server: NodeModel, call: ModelCall, reply: Reply) {
    const n = machine.name;
    const [answer, first, second] = reply;
    const { command } = call;
    if (answer === 'not-voting') this.observed.push({ do: 'refuse', n });
    if (command === 'acquire' || command === 'confirm' || command === 'backfill') {
      if (answer !== 'granted') return;
      const [owner = '', ...values] = call.values;
      const wanted = Number(
        command === 'confirm' ? values[0] : command === 'backfill' ? values[1] : 0,
      );
      const [gen, name = '', roster = ''] = String(second).split(' ');
      const voter = { gen: Number(gen), name, roster };
      const client = computer.name;
      this.observed.push({ do: command, client, n, owner, wanted, token: Number(first), ...voter });
    }
    const look = this.#lookOf.get(keyOf(computer.name, machine, call));
    if (!look) return;
    if (answer === 'inspected') {
      const [, , name, voting, gen, roster, max] = reply.map(String);
      const facts = { name: name ?? '', gen: Number(gen), roster: roster ?? '', max: Number(max) };
      const seen = { do: 'inspect', n, voting: voting === '1', ...facts } as const;
      this.observed.push(seen);
      this.#inspections.set(reply, { look, seen });
    }
    if (answer === 'promised') {
      const [, max, , voting, gen, name, roster] = reply.map(String);
      const facts = { name: name ?? '', gen: Number(gen), roster: roster ?? '', max: Number(max) };
      const given = { look, n, voting: voting === '1', counts: false, ...facts };
      const promised: Promised = { do: 'promise', ...given };
      this.observed.push(promised);
      this.#promises.set(reply, promised);
    }
    if (answer === 'admitted') this.observed.push({ do: 'admit', look, n, ...stateOf(server) });
  }

  /** Notes replies that reach a client. */
  answered(replies: readonly Reply[]): void {
    for (const reply of replies) {
      const { look, seen } = this.#inspections.get(reply) ?? {};
      if (look && seen) look.known.set(seen.n, seen);
      const promised = this.#promises.get(reply);
      if (promised) promised.counts = true;
    }
  }

  changed(machine: Machine, what: 'save' | 'restart' | 'forget'): void {
    const n = machine.name;
    if (what !== 'restart') this.observed.push({ do: what, n });
    else if (machine.master) this.observed.push({ do: what, n, ...stateOf(machine.master) });
  }

  won(client: string, token: bigint): void {
    this.observed.push({ do: 'win', client, token: Number(token) });
  }
}

function keyOf(client: string, { name }: Machine, { command, values }: ModelCall): string {
  return [client, name, command, ...values].join(' ');
}

function stateOf(server: NodeModel): State {
  const number = (field: string): number => Number(server.field(NODE_KEY, field) ?? 0);
  const roster = server.field(NODE_KEY, 'roster') ?? '';
  return { gen: number('generation'), max: number('max'), floor: number('floor'), roster };
}
