import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { Recording } from '../../../demo/src/web/recording.ts';
import { isLive } from '../real/live.ts';
import { parseRecording, RecordingError } from '../real/parse-recording.ts';
import { shownRun } from '../real/real-run.ts';
import { recorded } from '../real/recorded.ts';
import { LivePage } from './live-page.tsx';
import { useArrival } from './motion.ts';
import { RecordingFacts } from './recording-facts.tsx';
import { linkTo, type Route } from './route.ts';
import { RunView } from './run-view.tsx';
import { Verdict } from './verdict.tsx';

type RealRoute = Extract<Route, { page: 'real' }>;

/** Live runs, if the demo serves the page, and recorded runs. */
export function RealPage({ route: { from } }: { readonly route: RealRoute }) {
  const opened = useSignal<Recording | Error | null>(null);
  const address = from === '' ? null : new URL(from, document.baseURI);
  const isOurs = address?.origin === location.origin;
  const load = (): void => {
    if (!address) return;
    opened.value = null;
    fetch(address)
      .then(async (reply) => {
        if (!reply.ok) throw new RecordingError(`the server answers ${reply.status}`);
        opened.value = parseRecording(await reply.text());
      })
      .catch((error: Error) => {
        opened.value = error;
      });
  };
  useEffect(() => {
    opened.value = null;
    // Another server is asked only if the reader wants it.
    if (isOurs) load();
  }, [from]);
  const found = opened.value;
  return (
    <>
      {isLive() && from === '' ? <LivePage /> : <Introduction />}
      <section class="one-column">
        <h2>Open a recorded run</h2>
        <Openers
          onText={(text) => {
            try {
              opened.value = parseRecording(text);
            } catch (error) {
              opened.value = error as Error;
            }
          }}
        />
        {address && !isOurs && !found && (
          <p class="row">
            The link names a run on another server.
            <button type="button" onClick={load}>
              Load it from {address.host}
            </button>
          </p>
        )}
        {found instanceof Error && <p role="alert">The run cannot be opened: {found.message}.</p>}
      </section>
      {found && !(found instanceof Error) && <Recorded key={found.sha256} recording={found} />}
    </>
  );
}

function Introduction() {
  return (
    <section class="one-column">
      <h1>Real runs</h1>
      <p>
        The other parts of this page simulate. This part shows runs of real Redis, Postgres and S3
        servers, with processes that the kernel really stopped. Begin one in a clone of the project:
      </p>
      <pre>npm run demo -- --web</pre>
      <p>
        It prints an address. The page there has buttons that stop a process, hold packets and kill
        lock nodes.
      </p>
    </section>
  );
}

function Openers({ onText }: { readonly onText: (text: string) => void }) {
  return (
    <>
      <p class="row">
        <label>
          From a file{' '}
          <input
            type="file"
            accept=".json,application/json"
            onChange={({ currentTarget }) => {
              const [file] = currentTarget.files ?? [];
              file?.text().then(onText);
            }}
          />
        </label>
      </p>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          const from = String(new FormData(event.currentTarget).get('from'));
          location.hash = linkTo({ page: 'real', from });
        }}
      >
        <label>
          From a link <input type="text" name="from" required size={24} />
        </label>
        <button type="submit">Open</button>
      </form>
      <p>Runs that were recorded:</p>
      <ul class="columns">
        {recorded.map(({ title, file, protection }) => (
          <li key={file}>
            <a href={linkTo({ page: 'real', from: file })}>{title}</a>
            <span class="note"> {protection}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Recorded({ recording }: { readonly recording: Recording }) {
  const seek = useSignal<number | null>(null);
  const run = useMemo(() => shownRun(recording), [recording]);
  const heading = useArrival();
  return (
    <article class="two result">
      <section class="telling">
        <h1 ref={heading} tabIndex={-1}>
          {recording.variant.title}
        </h1>
        <Verdict {...recording.verdict} />
        <RecordingFacts recording={recording} />
      </section>
      <RunView
        {...{ run }}
        atMs={seek.value ?? run.endMs}
        onSeek={(ms) => {
          seek.value = ms;
        }}
      />
    </article>
  );
}
