import type { Rosters, TraceEvent } from '../spec/trace.ts';
import type { WorldTrace } from './worlds.ts';

type Nomination = {
  readonly node: string;
  readonly name: number;
  readonly gen: number;
};

/** The nominations of a plan. */
export function nominationsOf(plan: TraceEvent | undefined): readonly Nomination[] {
  return (plan?.nominations ?? []) as unknown as readonly Nomination[];
}

export interface Module {
  /** The source for Coq. It prints for each trace the first event that is refused; 0 for none. */
  readonly text: string;
  /** By trace: the place in the trace of each event that Coq gets, from 1. */
  readonly places: readonly (readonly number[])[];
}

/** Writes traces as data for spec/proof/Checker.v. */
export function moduleOf(traces: readonly WorldTrace[], { list }: Rosters): Module {
  const tables = list.map((roster, at) => {
    const entries = roster.map((entry, node) => pair(entry, node, roster.length));
    return `Definition r${at + 1} : table := [${entries.join('; ')}].`;
  });
  const written = traces.map((trace, at) => traceText(trace, at));
  const text = [
    'From Fenced Require Import Checker.',
    'Require Import NArith List.',
    'Import ListNotations.',
    'Open Scope N_scope.',
    ...tables,
    ...written.map((one) => one.text),
    `Eval vm_compute in map first_refused [${traces.map((_, at) => `t${at}`).join('; ')}].`,
    '',
  ].join('\n');
  return { text, places: written.map((one) => one.places) };
}

function traceText(
  { nodes, events }: WorldTrace,
  at: number,
): { readonly text: string; readonly places: readonly number[] } {
  const writer = new Writer(nodes);
  const plans = events.filter((event) => event.do === 'plan').map((plan) => writer.plan(plan));
  const places: number[] = [];
  const texts = events.flatMap((event, place) => {
    const text = writer.event(event);
    if (text === null) return [];
    places.push(place + 1);
    return [text];
  });
  const text = [
    `Definition t${at} : trace := {| size := ${nodes.length};`,
    `plans := [${plans.join(';\n')}];`,
    `events := [${texts.join(';\n')}] |}.`,
  ].join('\n');
  return { text, places };
}

/** The number of an incarnation. The remainder by the number of nodes is its node. */
function incarnation(name: number, node: number, size: number): number {
  if (name < 0) throw new Error('an incarnation that no node has shown');
  return name * size + node;
}

function pair({ name, gen }: Pick<Nomination, 'name' | 'gen'>, node: number, size: number): string {
  return `(${gen}, ${incarnation(name, node, size)})`;
}

class Writer {
  readonly #nodes: readonly string[];
  /** By round: the nominations. */
  readonly #plans = new Map<number, readonly Nomination[]>();
  /** By node: its present incarnation, as far as an event has shown it. */
  readonly #present = new Map<string, number>();

  constructor(nodes: readonly string[]) {
    this.#nodes = nodes;
  }

  plan(plan: TraceEvent): string {
    const { r = 0 } = plan;
    const list = nominationsOf(plan);
    this.#plans.set(r, list);
    const size = this.#nodes.length;
    const texts = list.map((one) => {
      const node = this.#nodes.indexOf(one.node);
      return `(${node}%nat, ${pair(one, node, size)})`;
    });
    return `(${r}, [${texts.join('; ')}])`;
  }

  /** Null for an event that shows nothing which the proof is about. */
  event(event: TraceEvent): string | null {
    const { n = '', a, r, token, gen, max, floor, roster } = event;
    switch (event.do) {
      case 'begin':
        return `Begins ${a}`;
      case 'acquire':
      case 'confirm':
        return `Votes ${a} ${this.#shown(event)} ${gen} ${token} r${roster}`;
      case 'backfill':
        return `Notes ${this.#shown(event)} ${gen} ${token} r${roster}`;
      case 'inspect':
        return `Shows ${this.#facts(event)}`;
      case 'promise':
        return `Promises ${r} ${this.#facts(event)}`;
      case 'decide':
        return `Decides ${r} ${floor} r${roster}`;
      case 'admit': {
        const nominations = this.#plans.get(r ?? 0) ?? [];
        const name = nominations.find(({ node }) => node === n)?.name ?? -1;
        return `Admits ${r} ${this.#shown({ ...event, name })} ${gen} ${floor} ${max} r${roster}`;
      }
      case 'win':
        return `Wins [${(event.among as readonly number[]).join('; ')}] ${token}`;
      case 'forget': {
        const present = this.#present.get(n);
        return present === undefined ? null : `Forgets ${present}`;
      }
      case 'restart':
        this.#present.delete(n);
        return null;
      default:
        return null;
    }
  }

  #facts(event: TraceEvent): string {
    const { voting, gen, max, roster } = event;
    return `${this.#shown(event)} ${voting} ${gen} ${max} r${roster}`;
  }

  #shown({ n = '', name }: TraceEvent): number {
    const shown = incarnation(Number(name), this.#nodes.indexOf(n), this.#nodes.length);
    this.#present.set(n, shown);
    return shown;
  }
}
