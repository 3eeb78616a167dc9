import { nodeKeys } from '../../packages/lock/src/redis/node-keys.ts';
import type { Runtime } from '../../packages/lock/src/runtime/runtime.ts';
import type { Machine } from './machine.ts';
import type { ModelCall, NodeModel, Reply } from './node-model.ts';

const [NODE_KEY] = nodeKeys('{fenced}:');

/**
 * Generation and name of a node's incarnation, and its roster as text, in the order of the nodes.
 */
interface Identity {
  readonly gen: number;
  readonly name: string;
  readonly roster: string;
}

/** One round of inspections by a client: at most one request to each node. */
export interface Look {
  readonly before: Look | null;
  /** Number of the id of its first request. The requests have ids in the order of the nodes. */
  readonly firstId: number;
  /** By node: the inspection that the client knew when it made its nominations. */
  readonly known: Map<string, Inspected>;
  /** The nominations, once the client asks for promises. */
  nominations: readonly Nomination[] | null;
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
  readonly #nodes: readonly string[];
  /** The number of each id, in the order in which ids were made. */
  readonly #ids = new Map<string, number>();
  readonly #looks = new Map<string, Look>();
  /** The look that each request belongs to. */
  readonly #lookOf = new Map<object, Look>();
  /**
   * Looks of requests that failed because the node did not know the script, by the request's text.
   */
  readonly #unknown = new Map<string, Look[]>();
  readonly #inspections = new Map<Reply, { readonly look: Look; readonly seen: Inspected }>();
  readonly #promises = new Map<Reply, Promised>();

  /** @param stepsMax the number of steps after which no more are needed */
  constructor(stepsMax: number, nodes: readonly string[]) {
    this.#stepsMax = stepsMax;
    this.#nodes = nodes;
  }

  /** Returns the runtime for a client. It numbers the ids that it makes. */
  watched(runtime: Runtime): Runtime {
    const uniqueId = (): string => {
      const id = runtime.uniqueId();
      this.#ids.set(id, this.#ids.size);
      return id;
    };
    return { ...runtime, uniqueId };
  }

  get isFull(): boolean {
    return this.observed.length >= this.#stepsMax;
  }

  /** Notes a request that a client sends. The object `request` identifies it. */
  asked({ computer, machine }: Sender, request: object, calls: readonly ModelCall[]): void {
    const call = calls.find(({ command }) => ['inspect', 'promise', 'admit'].includes(command));
    if (!call) return;
    // If the node did not know the script, the client sends it again as source. By then, the client
    // may have begun another look.
    const known = this.#unknown.get(keyOf(computer.name, machine, call))?.shift();
    const look = known ?? this.#lookAt(computer.name, machine, call);
    this.#lookOf.set(request, look);
    if (call.command === 'promise') this.#plans(look, call);
    else if (call.command === 'admit') this.#decides(look, call);
  }

  /** Notes a request that failed, because the node does not know the script. Its source follows. */
  unknown({ computer, machine }: Sender, request: object, calls: readonly ModelCall[]): void {
    const look = this.#lookOf.get(request);
    const call = calls.find(({ command }) => ['inspect', 'promise', 'admit'].includes(command));
    if (!look || !call) return;
    const key = keyOf(computer.name, machine, call);
    const looks = this.#unknown.get(key) ?? [];
    this.#unknown.set(key, [...looks, look]);
  }

  #lookAt(client: string, machine: Machine, call: ModelCall): Look {
    if (call.command === 'inspect') return this.#inspects(client, machine, call);
    const look = this.#looks.get(client);
    if (!look) throw new Error(`${call.command} before any INSPECT`);
    return look;
  }

  /**
   * Returns the look of an INSPECT. Only ids tell looks apart: a client may send fewer requests.
   */
  #inspects(client: string, { name }: Machine, { values: [id = ''] }: ModelCall): Look {
    const last = this.#looks.get(client) ?? null;
    const firstId = (this.#ids.get(id) ?? 0) - this.#nodes.indexOf(name);
    if (last?.firstId === firstId) return last;
    const look = {
      before: last,
      firstId,
      known: new Map(),
      nominations: null,
    };
    this.#looks.set(client, look);
    this.observed.push({ do: 'look', look });
    return look;
  }

  #plans(look: Look, { values }: ModelCall): void {
    if (look.nominations) return;
    const nominations: Nomination[] = [];
    for (let at = 4; at < values.length; at += 4) {
      const [place, nominated = '', gen] = values.slice(at);
      nominations.push({ node: Number(place) - 1, name: nominated, gen: Number(gen) });
    }
    look.nominations = nominations;
    this.observed.push({ do: 'plan', look });
  }

  #decides(look: Look, { values }: ModelCall): void {
    if (this.observed.some((one) => one.do === 'decide' && one.look === look)) return;
    const [roster = '', floor] = values.slice(3);
    this.observed.push({ do: 'decide', look, floor: Number(floor), roster });
  }

  /** Notes a call that a node has carried out. */
  carriedOut(
    { computer, machine }: Sender,
    request: object,
    server: NodeModel,
    call: ModelCall,
    reply: Reply,
  ): void {
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
    const look = this.#lookOf.get(request);
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
      if (look && seen && !look.nominations) look.known.set(seen.n, seen);
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
