import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { toEdn } from '../../../../test/torture/edn.ts';
import { toJsonLines } from '../../../../test/torture/json-lines.ts';
import { checkHistory } from '../../../demo/src/checker.ts';
import { missingStep } from '../../../demo/src/stories/story.ts';
import { isSealed, type Recording } from '../../../demo/src/web/recording.ts';
import { operationsOf } from '../real/operations.ts';
import { toPerfetto } from '../real/perfetto.ts';
import { shownRun, storyPlayed } from '../real/real-run.ts';

/** The origin of a recorded run, the checks of the page, and its exports. */
export function RecordingFacts({ recording }: { readonly recording: Recording }) {
  const { date, commit, machine, sha256, verdict, variant } = recording;
  const hash = useSignal('…');
  useEffect(() => {
    isSealed(recording).then(
      (is) => {
        hash.value = is ? 'fits' : 'does not fit: the file was changed';
      },
      () => {
        hash.value = 'is not checked: browsers do that on HTTPS and loopback only';
      },
    );
  }, [recording, hash]);
  const again = judge(recording);
  const agrees = again.verdict === verdict.verdict && again.reason === verdict.reason;
  return (
    <section class="facts">
      <h2>About this run</h2>
      <ul>
        <li>
          Recorded on {date}, commit {commit}: {variant.title}, {variant.protection} on{' '}
          {variant.store}
          {variant.lock !== 'fenced' && `, ${variant.lock}`}
        </li>
        {Object.entries(machine).map(([name, value]) => (
          <li key={name}>
            {name}: {value}
          </li>
        ))}
        <li class={hash.value.startsWith('does') ? 'bad' : ''} data-check="hash">
          SHA-256 <code class="hash">{sha256}</code> {hash.value}
        </li>
        <li class={agrees ? '' : 'bad'} data-check="verdict">
          {agrees
            ? 'The checker in this page has the same verdict.'
            : `The checker in this page says ${again.verdict}: ${again.reason}.`}
        </li>
      </ul>
      <Exports recording={recording} />
    </section>
  );
}

function judge({ variant, events }: Recording) {
  const story = storyPlayed(variant);
  return checkHistory(events, story && missingStep(story, events));
}

function Exports({ recording }: { readonly recording: Recording }) {
  const { story, protection } = recording.variant;
  const name = `run-${story ?? 'own'}-${protection}`;
  const files = {
    [`${name}.json`]: ['Save the run', () => JSON.stringify(recording, null, 1)],
    [`${name}.jsonl`]: ['JSON lines', () => toJsonLines(operationsOf(recording))],
    [`${name}.edn`]: ['EDN', () => toEdn(operationsOf(recording))],
    [`${name}.pftrace`]: ['Perfetto', () => toPerfetto(shownRun(recording))],
  } as const;
  return (
    <p class="row">
      {Object.entries(files).map(([file, [label, content]]) => (
        <button type="button" key={file} onClick={() => save(file, content())}>
          {label}
        </button>
      ))}
    </p>
  );
}

function save(file: string, content: string | Uint8Array<ArrayBuffer>): void {
  const url = URL.createObjectURL(new Blob([content]));
  Object.assign(document.createElement('a'), { href: url, download: file }).click();
  URL.revokeObjectURL(url);
}
