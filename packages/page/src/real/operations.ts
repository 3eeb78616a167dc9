import type { Operation } from '../../../../test/torture/history.ts';
import type { Event, Lines } from '../../../demo/src/history.ts';
import { isFenced } from '../../../demo/src/job.ts';
import type { Recording } from '../../../demo/src/web/recording.ts';

const RESOURCE = 'document';
const KINDS: Partial<Record<Event['operation'], Operation['kind']>> = {
  acquire: 'acquire',
  release: 'release',
  read: 'read',
  claim: 'claim',
  write: 'put',
};

/**
 * Returns the history of a run in the format of `test/torture`, for the exporters and checkers of
 * that test.
 */
export function operationsOf({ variant, events }: Pick<Recording, 'variant' | 'events'>) {
  return events.flatMap((event, at): Operation[] => {
    const kind = KINDS[event.operation];
    if (!kind) return [];
    const own = (one: Event): boolean => one.actor === event.actor;
    const isSame = (one: Event): boolean => own(one) && one.operation === event.operation;
    const [before, after] = [events.slice(0, at), events.slice(at + 1)];
    if (event.phase === 'invoke') {
      const end = after.find(isSame);
      if (end && end.phase !== 'invoke') return [];
    }
    const begin = event.phase === 'invoke' ? event : before.findLast(isSame);
    const isOnLock = kind === 'acquire' || kind === 'release';
    const lease = before.findLast(({ operation, phase, ...one }) => {
      return one.actor === event.actor && operation === 'acquire' && phase === 'ok';
    });
    const token = kind === 'acquire' ? event.token : isFenced(variant.protection) && lease?.token;
    const edited = before.findLast((one) => own(one) && one.operation === 'check');
    const isUpdate = kind === 'put' && variant.protection === 'token+cas';
    const read = before.findLast((one) => own(one) && one.operation === 'read');
    return [
      {
        process: `c${event.actor.at(-1)}.0`,
        kind: isUpdate ? 'update' : kind,
        object: `${isOnLock ? 'lock' : variant.store}/${RESOURCE}`,
        callNs: inNs((begin?.phase === 'invoke' ? begin : event).atMs),
        returnNs: event.phase === 'invoke' ? null : inNs(event.atMs),
        outcome: event.phase === 'invoke' ? 'unknown' : event.phase,
        ...(token && { token }),
        ...(kind === 'read' && { value: textOf(event.lines) }),
        ...(kind === 'put' && { value: textOf(edited?.lines) }),
        ...(isUpdate && { from: textOf(read?.lines) }),
        ...(event.highest !== undefined && { highest: event.highest }),
      },
    ];
  });
}

function inNs(ms: number): number {
  return Math.round(ms * 1e6);
}

/** The document as text. Null before the first write. */
function textOf(lines: Lines = []): string | null {
  return lines.length === 0 ? null : lines.join(', ');
}
