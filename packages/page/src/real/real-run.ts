import { Comparisons } from '../../../demo/src/comparisons.ts';
import type { Event } from '../../../demo/src/history.ts';
import { stories } from '../../../demo/src/stories/all.ts';
import { pausedBeforeWrite } from '../../../demo/src/stories/paused-before-write.ts';
import type { Recording } from '../../../demo/src/web/recording.ts';
import type { Message, NodeLease, Run } from '../world/run.ts';

/** A run of real processes and servers, perhaps not over yet. */
export type RealRun = Pick<Recording, 'variant' | 'nodes' | 'events' | 'leases' | 'endMs'> & {
  /** Null while the run goes on. */
  readonly verdict: Recording['verdict'] | null;
};

/** Returns a real run as the picture shows it. */
export function shownRun(real: RealRun): Run {
  const events = real.events.toSorted((a, b) => a.atMs - b.atMs);
  return {
    nodes: real.nodes,
    events,
    faults: [],
    endMs: real.endMs,
    messages: messagesOf({ ...real, events }),
    leases: real.leases.map((lease): NodeLease => {
      const holder = events.find(({ operation, phase, token }) => {
        return operation === 'acquire' && phase === 'ok' && token === lease.token;
      });
      return { ...lease, client: holder?.actor ?? '' };
    }),
    verdict: real.verdict ?? { verdict: 'unknown', reason: 'the run goes on' },
  };
}

/** The story of a real run, or null if the reader made the faults. */
export function storyPlayed({ story, title }: Recording['variant']) {
  return stories.find((one) => one.number === story && one.title === title) ?? null;
}

const REQUESTS: ReadonlySet<string> = new Set(['read', 'write', 'claim', 'probe']);
/** A client, or its gateway, sends a request after the latest event of these kinds. */
const DELAYS: ReadonlySet<string> = new Set(['invoke', 'check', 'wake']);

/**
 * Requests to the storage and their replies. Nobody sees the moment at which a real server acts. It
 * is between request and reply, and after the delivery of a held packet. The picture takes the
 * middle of that time.
 */
function messagesOf({ variant, events, endMs, verdict }: RealRun): readonly Message[] {
  const story = storyPlayed(variant) ?? pausedBeforeWrite;
  const comparisons = new Comparisons({ story, protection: variant.protection });
  const messages = events.flatMap((event, at): Message[] => {
    const comparison = comparisons.of(event);
    if (!REQUESTS.has(event.operation)) return [];
    const own = (one: Event): boolean =>
      one.actor === event.actor || (event.actor === 'client 1' && one.actor === 'gateway A');
    if (event.phase === 'invoke') {
      const hasEnded = events.slice(at + 1).some((one) => {
        return one.actor === event.actor && one.operation === event.operation;
      });
      const arrivedMs = verdict === null ? endMs : null;
      return hasEnded ? [] : [requestOf(event, event.atMs, arrivedMs)];
    }
    const before = events.slice(0, at);
    const begin = before.findLast(({ actor, operation, phase }) => {
      return actor === event.actor && operation === event.operation && phase === 'invoke';
    });
    if (!begin) return [];
    const sentMs =
      before.findLast((one) => own(one) && (DELAYS.has(one.phase) || DELAYS.has(one.operation)))
        ?.atMs ?? begin.atMs;
    const freeMs = before.findLast((one) => one.operation === 'deliver')?.atMs ?? sentMs;
    const actsMs = (Math.max(sentMs, freeMs) + event.atMs) / 2;
    return [requestOf(event, sentMs, actsMs), replyOf(event, actsMs, comparison)];
  });
  return messages.sort((a, b) => a.sentMs - b.sentMs);
}

function requestOf({ actor, operation }: Event, sentMs: number, arrivedMs: number | null): Message {
  return { from: actor, to: 'storage', sentMs, arrivedMs, label: operation, tone: 'plain' };
}

function replyOf({ actor, operation, phase, atMs, reason }: Event, sentMs: number, shown: string) {
  const tone =
    phase !== 'ok' ? 'bad' : operation === 'write' || operation === 'claim' ? 'good' : 'plain';
  const arrivedMs = phase === 'unknown' ? null : atMs;
  const label = shown || (phase === 'ok' ? '' : (reason ?? phase));
  return { from: 'storage', to: actor, sentMs, arrivedMs, label, tone } as const;
}
