import { Random } from '../simulation/random.ts';
import type { Rosters, TraceEvent } from '../spec/trace.ts';
import { nominationsOf } from './coq-data.ts';
import type { WorldTrace } from './worlds.ts';

/** A trace with one change, after which it is no run of the protocol. */
export interface ChangedTrace extends WorldTrace {
  readonly change: string;
  /** The first event that differs, from 1. */
  readonly changedAt: number;
}

type Events = readonly TraceEvent[];

interface Change {
  readonly name: string;
  /** Returns the changed events if the event at this place can be changed; otherwise null. */
  change(trace: WorldTrace, at: number, rosters: Rosters): Events | null;
}

const isVote = (event: TraceEvent): boolean => event.do === 'acquire' || event.do === 'confirm';

/** True if both events are of one incarnation under one generation. */
function isSameVoter(one: TraceEvent, other: TraceEvent): boolean {
  return one.n === other.n && one.name === other.name && one.gen === other.gen;
}

/** The answers to the promises that a round asks for, from nodes with a vote. */
function promisesOf(events: Events, r: number | undefined): Events {
  return events.filter((one) => one.do === 'promise' && one.r === r && one.voting === true);
}

function numberIn(event: TraceEvent | undefined, field: string): number {
  return Number(event?.[field] ?? 0);
}

function emptyRoster({ nodes }: WorldTrace, rosters: Rosters): number {
  return rosters.placeOf(nodes.map(() => ({ name: 0, gen: 0 })));
}

/**
 * A roster in which the entry of one of these nodes has the same generation, and a lower name. Null
 * if there is none.
 */
function lowered(roster: number, places: readonly number[], rosters: Rosters): number | null {
  const entries = rosters.list[roster - 1] ?? [];
  const place = places.find((at) => (entries[at]?.name ?? 0) > 0);
  const entry = entries[place ?? -1];
  if (place === undefined || !entry) return null;
  return rosters.placeOf(entries.with(place, { ...entry, name: entry.name - 1 }));
}

const changes: readonly Change[] = [
  {
    name: 'a number that the voter has given before',
    change({ events }, at) {
      const event = events[at];
      if (!event || !isVote(event)) return null;
      const before = events.slice(0, at).findLast((one) => isVote(one) && isSameVoter(one, event));
      return before ? replaced(events, at, { token: numberIn(before, 'token') }) : null;
    },
  },
  {
    name: 'a vote of an incarnation without a vote',
    change({ events }, at) {
      const refusal = events[at];
      if (refusal?.do !== 'refuse') return null;
      const before = events.slice(0, at);
      const isOwn = (one: TraceEvent): boolean => one.n === refusal.n;
      const begun = before.findLast((one) => one.do === 'begin');
      const seen = before.findLastIndex((one) => isOwn(one) && one.do === 'inspect');
      const shown = before[seen];
      const isAdmitted = before.slice(seen).some((one) => isOwn(one) && one.do === 'admit');
      if (!begun || !shown || shown.voting === true || isAdmitted) return null;
      const token = numberIn(shown, 'max') + 1;
      return events.with(at, { ...shown, do: 'acquire', a: numberIn(begun, 'a'), token });
    },
  },
  {
    name: 'an admission left out',
    change({ events }, at) {
      const admit = events[at];
      if (admit?.do !== 'admit') return null;
      const isOwn = (one: TraceEvent): boolean => one.n === admit.n && one.gen === admit.gen;
      const isOther = events.some((one, place) => place !== at && one.do === 'admit' && isOwn(one));
      const isNeeded = events.slice(at).some((one) => isVote(one) && isOwn(one));
      return isNeeded && !isOther ? events.toSpliced(at, 1) : null;
    },
  },
  {
    name: 'a beginning left out',
    change({ events }, at) {
      return events[at]?.do === 'begin' ? events.toSpliced(at, 1) : null;
    },
  },
  {
    name: 'a floor below all promises',
    change({ nodes, events }, at) {
      const event = events[at];
      if (event?.do !== 'decide') return null;
      // A first start needs the promises of all nodes, and other rounds those of voters.
      const plan = events.find((one) => one.do === 'plan' && one.r === event.r);
      const isForAll = nominationsOf(plan).length === nodes.length;
      const highest = events
        .filter((one) => one.do === 'promise' && one.r === event.r)
        .filter((one) => isForAll || one.voting === true)
        .map((one) => numberIn(one, 'max'));
      const least = Math.min(...highest);
      return least > 0 ? replaced(events, at, { floor: least - 1 }) : null;
    },
  },
  {
    name: 'a decision without the rosters of the promises',
    change(trace, at, rosters) {
      const event = trace.events[at];
      if (event?.do !== 'decide') return null;
      return replaced(trace.events, at, { roster: emptyRoster(trace, rosters) });
    },
  },
  {
    name: 'a decision for the lower name under one generation',
    change({ nodes, events }, at, rosters) {
      const event = events[at];
      if (event?.do !== 'decide') return null;
      const plan = events.find((one) => one.do === 'plan' && one.r === event.r);
      const nominated = nominationsOf(plan).map(({ node }) => node);
      const decided = numberIn(event, 'roster');
      const isKnown = (place: number): boolean =>
        promisesOf(events, event.r).every((one) => {
          const known = rosters.list[numberIn(one, 'roster') - 1]?.[place];
          const entry = rosters.list[decided - 1]?.[place];
          return known?.gen === entry?.gen && known?.name === entry?.name;
        });
      const places = [...nodes.keys()].filter(
        (place) => !nominated.includes(nodes[place] ?? '') && isKnown(place),
      );
      const roster = lowered(decided, places, rosters);
      return roster === null ? null : replaced(events, at, { roster });
    },
  },
  {
    name: 'an admission with the lower name under one generation',
    change({ nodes, events }, at, rosters) {
      const event = events[at];
      if (event?.do !== 'admit') return null;
      const decision = events.find((one) => one.do === 'decide' && one.r === event.r);
      const roster = lowered(numberIn(decision, 'roster'), [...nodes.keys()], rosters);
      return roster === null ? null : replaced(events, at, { roster });
    },
  },
  {
    name: 'an admission below the floor',
    change({ events }, at) {
      const event = events[at];
      if (event?.do !== 'admit') return null;
      const decision = events.find((one) => one.do === 'decide' && one.r === event.r);
      const floor = numberIn(decision, 'floor') - 1;
      return floor >= 0 ? replaced(events, at, { floor, max: Math.max(floor, 0) }) : null;
    },
  },
  {
    name: 'an admission without the roster of the decision',
    change(trace, at, rosters) {
      const event = trace.events[at];
      if (event?.do !== 'admit') return null;
      return replaced(trace.events, at, { roster: emptyRoster(trace, rosters) });
    },
  },
  {
    name: 'a nomination that a promising node knows to be outlived',
    change({ events }, at) {
      const plan = events[at];
      if (plan?.do !== 'plan') return null;
      const promised = promisesOf(events, plan.r)[0];
      const nominations = nominationsOf(plan);
      const [own] = nominations.filter(({ node }) => node === promised?.n);
      // A voter always knows itself, so its own entry is in its roster.
      if (!own) return null;
      const older = nominations.map((one) => (one === own ? { ...one, gen: 0 } : one));
      return replaced(events, at, { nominations: older });
    },
  },
  {
    name: 'a promise that does not know a number given before',
    change({ events }, at) {
      const event = events[at];
      if (event?.do !== 'promise' || event.voting !== true) return null;
      return replaced(events, at, { max: numberIn(event, 'max') - 1 });
    },
  },
  {
    name: 'a win without a majority',
    change({ nodes, events }, at) {
      const win = events[at];
      if (win?.do !== 'win') return null;
      const among = win.among as readonly number[];
      const votes = [...events.keys()].filter((place) => {
        const one = events[place];
        return one && isVote(one) && among.includes(one.a ?? 0) && one.token === win.token;
      });
      // Of each acquisition, the votes of less than a majority of the nodes stay.
      const few = nodes.slice(0, Math.floor(nodes.length / 2));
      const dropped = votes.filter((place) => !few.includes(events[place]?.n ?? ''));
      return events.filter((_, place) => !dropped.includes(place));
    },
  },
];

function replaced(events: Events, at: number, fields: Partial<TraceEvent>): Events {
  const event = events[at];
  return event ? events.with(at, { ...event, ...fields }) : events;
}

/**
 * Changes each trace in one way, and uses the ways in turn. If a way does not apply to a trace,
 * uses the next way. Leaves out a trace that no way applies to.
 */
export function changed(traces: readonly WorldTrace[], rosters: Rosters): ChangedTrace[] {
  return traces.flatMap((trace, turn) => {
    const random = new Random(trace.seed, 'change');
    for (let kind = turn; kind < turn + changes.length; kind += 1) {
      const way = changes[kind % changes.length];
      if (!way) continue;
      const found = [...trace.events.keys()].flatMap((at) => {
        const events = way.change(trace, at, rosters);
        return events ? [events] : [];
      });
      if (found.length === 0) continue;
      const events = random.pick(found);
      const first = events.findIndex((event, place) => event !== trace.events[place]);
      return [{ ...trace, events, change: way.name, changedAt: first + 1 }];
    }
    return [];
  });
}
