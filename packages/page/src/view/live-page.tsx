import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { explained } from '../../../demo/src/job.ts';
import type { Action, OfferedStory } from '../../../demo/src/web/feed.ts';
import { ask, type LiveState, listen } from '../real/live.ts';
import { shownRun } from '../real/real-run.ts';
import { RecordingFacts } from './recording-facts.tsx';
import { RunView } from './run-view.tsx';
import { Verdict } from './verdict.tsx';

type Process = LiveState['processes'][number];

/** Runs of the demo that served this page: real servers, and processes that are really stopped. */
export function LivePage() {
  const state = useSignal<LiveState | null>(null);
  const refusal = useSignal<string | null>(null);
  const seek = useSignal<number | null>(null);
  useEffect(
    () =>
      listen((next) => {
        state.value = next;
      }),
    [state],
  );
  const run = state.value?.run ?? null;
  const shown = useMemo(() => run && shownRun(run), [run]);
  if (!state.value) return <p>Connecting to the demo …</p>;
  const { stories, recording, failure, processes, arePacketsHeld } = state.value;
  const send = (...request: Parameters<typeof ask>): void => {
    refusal.value = null;
    ask(...request).catch((error: Error) => {
      refusal.value = error.message;
    });
  };
  const act = (action: Action): void => send('act', action);
  const isGoingOn = run !== null && recording === null && failure === null;
  return (
    <article class="two">
      <section class="telling">
        <h1>Real runs</h1>
        <p>
          Everything here is real: servers, processes and signals on your machine. In a run of your
          own, each client takes a lease of 6 s, reads, works for 3 s and writes. Stop client 1
          while it works, wait until client 2 has written, and continue client 1.
        </p>
        <Beginning
          {...{ stories, isGoingOn }}
          onBegin={(variant) => {
            seek.value = null;
            send('begin', variant);
          }}
        />
        {run?.variant.story === null && isGoingOn && (
          <Buttons {...{ processes, arePacketsHeld, act }} nodes={run.nodes} />
        )}
        {refusal.value && <p role="alert">Refused: {refusal.value}</p>}
        {failure && <p role="alert">The run failed: {failure}</p>}
        {recording && (
          <>
            <Verdict {...recording.verdict} />
            <RecordingFacts recording={recording} />
          </>
        )}
      </section>
      {shown && (
        <RunView
          run={shown}
          atMs={seek.value ?? shown.endMs}
          onSeek={(ms) => {
            seek.value = ms;
          }}
        />
      )}
    </article>
  );
}

type Choice = Pick<OfferedStory, 'title'> & OfferedStory['variants'][number];

function Beginning(props: {
  readonly stories: readonly OfferedStory[];
  readonly isGoingOn: boolean;
  readonly onBegin: (choice: Choice) => void;
}) {
  const { stories, isGoingOn, onBegin } = props;
  const chosen = useSignal({ title: '', at: 1 });
  const story = stories.find(({ title }) => title === chosen.value.title) ?? stories[0];
  if (!story) return null;
  const variant = story.variants[chosen.value.at] ?? story.variants[0];
  return (
    <fieldset class="choice">
      <legend>Begin a run</legend>
      <p class="row">
        <label>
          Story{' '}
          <select
            value={story.title}
            onChange={({ currentTarget }) => {
              chosen.value = { title: currentTarget.value, at: 0 };
            }}
          >
            {stories.map(({ story, title }) => (
              <option key={title} value={title}>
                {story === null ? title : `${story} ${title}`}
              </option>
            ))}
          </select>
        </label>
        <label>
          Protection{' '}
          <select
            value={story.variants.indexOf(variant ?? (story.variants[0] as never))}
            onChange={({ currentTarget }) => {
              chosen.value = { title: story.title, at: Number(currentTarget.value) };
            }}
          >
            {story.variants.map(({ lock, protection }, at) => (
              <option key={at} value={at}>
                {lock === 'fenced' ? protection : `${protection}, ${lock}`}
              </option>
            ))}
          </select>
        </label>
      </p>
      {variant && <p class="note">{explained[variant.protection]}</p>}
      <p class="row">
        <button
          type="button"
          class="main"
          disabled={isGoingOn || !variant}
          onClick={() => variant && onBegin({ title: story.title, ...variant })}
        >
          {isGoingOn ? 'The run goes on …' : 'Begin'}
        </button>
      </p>
    </fieldset>
  );
}

function Buttons(props: {
  readonly processes: readonly Process[];
  readonly arePacketsHeld: boolean;
  readonly nodes: readonly string[];
  readonly act: (action: Action) => void;
}) {
  const { processes, arePacketsHeld, nodes, act } = props;
  return (
    <fieldset class="choice">
      <legend>Faults, for real</legend>
      {processes.map(({ client, pid, state }) => (
        <p class="row" key={client}>
          <span class="process">
            client {client}: process <code>{pid}</code>, {state}
          </span>
          <button
            type="button"
            disabled={state !== 'running'}
            onClick={() => act({ action: 'stop', client })}
          >
            Stop client {client}
          </button>
          <button
            type="button"
            disabled={state !== 'stopped'}
            onClick={() => act({ action: 'continue', client })}
          >
            Continue client {client}
          </button>
        </p>
      ))}
      <p class="row">
        <span class="process">Packets of client 1 to the storage</span>
        <button type="button" disabled={arePacketsHeld} onClick={() => act({ action: 'hold' })}>
          Hold them
        </button>
        <button type="button" disabled={!arePacketsHeld} onClick={() => act({ action: 'deliver' })}>
          Deliver them
        </button>
      </p>
      <p class="row">
        <span class="process">Kill a lock node, and restart it without data</span>
        {nodes.map((node) => (
          <button type="button" key={node} onClick={() => act({ action: 'wipe', node })}>
            Wipe {node.toUpperCase()}
          </button>
        ))}
      </p>
    </fieldset>
  );
}
