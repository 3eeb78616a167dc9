import { Random } from '../simulation/random.ts';
import type { Trace, TraceEvent } from './trace.ts';

/** A trace with one change, after which it is no behaviour of the specification. */
export interface Altered extends Trace {
  readonly alteration: string;
  /** The first event that differs, from 1. */
  readonly alteredAt: number;
}

type Events = readonly TraceEvent[];

interface Alteration {
  readonly name: string;
  /** True if the event at this place may be altered. */
  applies(events: Events, at: number): boolean;
  alter(events: Events, at: number): Events;
}

const NODES = ['a', 'b', 'c'];

/**
 * Index of the node's next event that changes its memory or needs its vote; -1 if there is none.
 */
function nextAt(events: Events, at: number): number {
  const node = events[at]?.n;
  const passive = ['save', 'inspect', 'promise'];
  return events.findIndex(
    (one, place) => place > at && one.n === node && !passive.includes(one.do),
  );
}

/** True for a grant if the node's next event is a grant of the next token: nothing came between. */
function hasNext(events: Events, at: number): boolean {
  const next = events[nextAt(events, at)];
  return events[at]?.do === 'acquire' && next?.do === 'acquire';
}

/** True for a step without which the next event of the node is impossible. */
function isNeeded(events: Events, at: number): boolean {
  const next = events[nextAt(events, at)]?.do;
  const voted = events.slice(0, at).findLast((one) => one.n === events[at]?.n && one.do !== 'save');
  switch (events[at]?.do) {
    case 'begin':
      return true;
    case 'acquire':
      return hasNext(events, at);
    case 'admit':
      return next === 'acquire';
    case 'restart':
      return voted?.do === 'acquire' && next === 'refuse';
    default:
      return false;
  }
}

const alterations: readonly Alteration[] = [
  {
    name: 'another token',
    applies: (events, at) => ['acquire', 'confirm'].includes(events[at]?.do ?? ''),
    alter: (events, at) => replaced(events, at, { token: (events[at]?.token ?? 0) + 1 }),
  },
  {
    name: 'a step left out',
    applies: isNeeded,
    alter: (events, at) => events.toSpliced(at, 1),
  },
  {
    name: 'two steps in the other order',
    applies: (events, at) =>
      hasNext(events, at) || (events[at]?.do === 'admit' && isNeeded(events, at)),
    alter: (events, at) => {
      const next = nextAt(events, at);
      const [one, other] = [events[at], events[next]];
      return one && other ? events.with(at, other).with(next, one) : events;
    },
  },
  {
    name: 'the vote of another node',
    applies: hasNext,
    alter: (events, at) => {
      const place = NODES.indexOf(events[at]?.n ?? '');
      return replaced(events, at, { n: NODES[(place + 1) % NODES.length] ?? '' });
    },
  },
  {
    name: 'a vote without memory',
    applies: (events, at) => events[at]?.do === 'refuse' && lastVote(events, at) !== undefined,
    alter: (events, at) => {
      const vote = lastVote(events, at);
      return vote ? events.with(at, { ...vote, token: (vote.token ?? 0) + 1 }) : events;
    },
  },
];

function lastVote(events: Events, at: number): TraceEvent | undefined {
  return events.slice(0, at).findLast((one) => one.do === 'acquire' && one.n === events[at]?.n);
}

function replaced(events: Events, at: number, fields: Partial<TraceEvent>): Events {
  const event = events[at];
  return event ? events.with(at, { ...event, ...fields }) : events;
}

/**
 * Alters each trace in one way, and uses the ways in turn. If a way does not apply to a trace, uses
 * the next way. Leaves out a trace in which no node voted.
 */
export function altered(traces: readonly Trace[]): Altered[] {
  return traces.flatMap((trace, turn) => {
    const { seed, events } = trace;
    const random = new Random(seed, 'alteration');
    for (let kind = turn; kind < turn + alterations.length; kind += 1) {
      const alteration = alterations[kind % alterations.length];
      const places = [...events.keys()].filter((at) => alteration?.applies(events, at));
      if (!alteration || places.length === 0) continue;
      const at = random.pick(places);
      const changed = alteration.alter(events, at);
      return { seed, events: changed, alteration: alteration.name, alteredAt: at + 1 };
    }
    return [];
  });
}
