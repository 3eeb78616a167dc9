import type { Event } from '../../../demo/src/history.ts';
import type { Message, Run } from '../world/run.ts';

/** A line of the table, and a text in the picture. */
export interface Row {
  readonly atMs: number;
  readonly place: string;
  readonly text: string;
  readonly tone: 'plain' | 'good' | 'bad';
}

/**
 * The messages of a run without those of repeated refusals. A client asks again until it gets the
 * lock.
 */
export function withoutRepeats(run: Run): readonly Message[] {
  const begins = run.events.filter(({ operation, phase }) => {
    return operation === 'acquire' && phase === 'invoke';
  });
  const isRefused = (begin: Event): boolean => {
    const end = run.events.find(({ actor, operation, phase, atMs }) => {
      const isEnd = operation === 'acquire' && phase !== 'invoke';
      return isEnd && actor === begin.actor && atMs >= begin.atMs;
    });
    return end?.phase === 'refused';
  };
  const hidden = begins.filter((begin) => {
    const first = begins.find(({ actor }) => actor === begin.actor);
    return begin !== first && isRefused(begin);
  });
  return run.messages.filter(({ from, to, sentMs }) => {
    if (from === 'storage' || to === 'storage') return true;
    const begin = begins.findLast(({ actor, atMs }) => {
      return (actor === from || actor === to) && atMs <= sentMs;
    });
    return !begin || !hidden.includes(begin);
  });
}

/** The events of a run in words. Refusals of a client after its first are left out. */
export function rowsOf(run: Run): readonly Row[] {
  const turnedAway = new Set<string>();
  const ofEvents = run.events.flatMap((event): Row[] => {
    if (event.operation === 'acquire' && event.phase === 'refused') {
      if (turnedAway.has(event.actor)) return [];
      turnedAway.add(event.actor);
    }
    const text = textOf(event);
    if (text === null) return [];
    return [{ atMs: event.atMs, place: event.actor, text, tone: toneOf(event) }];
  });
  const ofStorage = run.messages.flatMap(({ from, sentMs, label, tone }): Row[] =>
    from === 'storage' && (tone === 'good' || tone === 'bad')
      ? [{ atMs: sentMs, place: 'storage', text: label, tone }]
      : [],
  );
  const ofFaults = run.faults.map(({ atMs, place, text }): Row => {
    return { atMs, place, text, tone: 'bad' };
  });
  return [...ofEvents, ...ofStorage, ...ofFaults].sort((a, b) => a.atMs - b.atMs);
}

function textOf({ operation, phase, token, validMs, lines, reason }: Event): string | null {
  const list = `[${lines?.map((line) => line.replace('client ', '')).join(', ')}]`;
  const texts: Partial<Record<`${Event['operation']} ${Event['phase']}`, string>> = {
    'probe refused': 'refuses the storage',
    'acquire ok': token === undefined ? 'lock' : `lock, token ${token}`,
    'acquire refused': `no lock: ${reason}`,
    'claim refused': 'claim refused',
    'read ok': `reads ${list}`,
    'check ok': validMs === undefined ? 'edits' : `lease valid: ${Math.floor(validMs)} ms`,
    'check failed': 'gives up: its lease is over',
    'pause ok': 'is stopped',
    'wake ok': 'wakes up',
    'write ok': 'write acknowledged',
    'write refused': 'write refused',
    'write unknown': 'outcome unknown',
    'expire ok': 'the lease is over',
    'forget ok': reason ?? '',
    'reach ok': reason ?? '',
    'hold ok': reason ?? '',
    'deliver ok': reason ?? '',
    'lose ok': reason ?? '',
    'final ok': `holds ${list}`,
  };
  return texts[`${operation} ${phase}`] ?? null;
}

function toneOf({ operation, phase }: Event): Row['tone'] {
  if (operation === 'pause' || operation === 'forget' || operation === 'lose') return 'bad';
  if (phase === 'refused' || phase === 'unknown' || phase === 'failed') return 'bad';
  return operation === 'write' || (operation === 'acquire' && phase === 'ok') ? 'good' : 'plain';
}
