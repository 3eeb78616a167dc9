import type { Event } from '../../../packages/demo/src/history.ts';
import { FORMAT, type Recording } from '../../../packages/demo/src/web/recording.ts';

const TURN_MS = 100;
const NODES = ['a', 'b', 'c'];

/**
 * Makes a recorded run in which the clients write one after the other. Each turn has five steps.
 */
export function longRun(turns: number): Recording {
  const starts = Array.from({ length: turns }, (_, at) => ({ at, fromMs: at * TURN_MS }));
  const tokenOf = (at: number): string => `${33 + at}`;
  return {
    format: FORMAT,
    date: '2026-11-24',
    commit: '',
    machine: {},
    sha256: '',
    variant: { story: 1, title: '', lock: 'fenced', protection: 'token', store: 'postgres' },
    nodes: NODES,
    events: starts.flatMap(({ at, fromMs }) => turnOf(at % 2 ? 2 : 1, tokenOf(at), fromMs)),
    leases: starts.flatMap(({ at, fromMs }) =>
      NODES.map((node) => {
        return { node, token: tokenOf(at), fromMs: fromMs + 8, untilMs: fromMs + 75 };
      }),
    ),
    endMs: turns * TURN_MS,
    verdict: { verdict: 'safe', reason: '' },
  };
}

function turnOf(client: 1 | 2, token: string, fromMs: number): readonly Event[] {
  const actor = `client ${client}` as const;
  const at = (ms: number, rest: Pick<Event, 'operation' | 'phase'> & Partial<Event>): Event => {
    return { atMs: fromMs + ms, actor, ...rest };
  };
  return [
    at(0, { operation: 'acquire', phase: 'invoke' }),
    at(10, { operation: 'acquire', phase: 'ok', token, validMs: 2_000 }),
    at(11, { operation: 'read', phase: 'invoke' }),
    at(20, { operation: 'read', phase: 'ok', lines: [] }),
    at(30, { operation: 'check', phase: 'ok', lines: [actor], validMs: 1_980 }),
    at(40, { operation: 'write', phase: 'invoke' }),
    at(60, { operation: 'write', phase: 'ok' }),
    at(70, { operation: 'release', phase: 'invoke' }),
    at(80, { operation: 'release', phase: 'ok' }),
  ];
}
