import type { Action, FeedMessage, OfferedStory } from '../../../demo/src/web/feed.ts';
import type { Recording } from '../../../demo/src/web/recording.ts';
import type { RealRun } from './real-run.ts';

type Process = Extract<FeedMessage, { kind: 'process' }>;

/** Everything that the server has reported. */
export interface LiveState {
  readonly machine: Readonly<Record<string, string>>;
  readonly stories: readonly OfferedStory[];
  readonly run: RealRun | null;
  readonly processes: readonly Process[];
  readonly arePacketsHeld: boolean;
  /** Null while the run goes on. */
  readonly recording: Recording | null;
  readonly failure: string | null;
}

const NOTHING: LiveState = {
  machine: {},
  stories: [],
  run: null,
  processes: [],
  arePacketsHeld: false,
  recording: null,
  failure: null,
};

/** Returns true if the demo serves this page: its server adds a mark. */
export function isLive(): boolean {
  return document.querySelector('meta[name=live]') !== null;
}

/** Calls the listener with each state. Returns a function that stops the calls. */
export function listen(onState: (state: LiveState) => void): () => void {
  let state = NOTHING;
  const source = new EventSource('live/feed');
  source.onmessage = ({ data }) => {
    state = after(state, JSON.parse(data));
    onState(state);
  };
  source.onerror = () => {
    state = { ...state, failure: 'the connection to the demo is broken' };
    onState(state);
  };
  return () => source.close();
}

function after(state: LiveState, message: FeedMessage): LiveState {
  const { run } = state;
  switch (message.kind) {
    case 'offer':
      // After each connect, the server sends the latest run from its beginning.
      return { ...NOTHING, machine: message.machine, stories: message.stories };
    case 'begin': {
      const { variant, nodes } = message;
      const begun = { variant, nodes, events: [], leases: [], endMs: 0, verdict: null };
      return { ...NOTHING, machine: state.machine, stories: state.stories, run: begun };
    }
    case 'process': {
      const others = state.processes.filter(({ client }) => client !== message.client);
      return { ...state, processes: [...others, message].sort((a, b) => a.client - b.client) };
    }
    case 'packets':
      return { ...state, arePacketsHeld: message.held };
    case 'end': {
      const { recording } = message;
      return { ...state, recording, run: recording };
    }
    case 'failed':
      return { ...state, failure: message.reason };
  }
  return run ? { ...state, run: grown(run, message) } : state;
}

function grown(
  run: RealRun,
  message: Extract<FeedMessage, { kind: 'event' | 'lease' | 'now' }>,
): RealRun {
  if (message.kind === 'now') return { ...run, endMs: Math.max(run.endMs, message.atMs) };
  if (message.kind === 'lease') {
    const leases = [...run.leases];
    leases[message.at] = message.lease;
    return { ...run, leases };
  }
  const { event } = message;
  return { ...run, events: [...run.events, event], endMs: Math.max(run.endMs, event.atMs) };
}

/** @throws Error with the server's reason, if it refuses */
export async function ask(
  path: 'begin' | 'act',
  body: Action | Pick<Recording['variant'], 'title' | 'lock' | 'protection'>,
): Promise<void> {
  const reply = await fetch(`live/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!reply.ok) throw new Error(await reply.text());
}
