import { useSignal } from '@preact/signals';
import type { Protection } from '../../../demo/src/job.ts';
import {
  addressOf,
  canRefuse,
  type PageStory,
  stories,
  storyOf,
  timeOf,
} from '../stories/stories.ts';
import type { Told } from '../stories/tellings.ts';
import type { Run } from '../world/run.ts';
import { useStep } from './motion.ts';
import { change } from './navigation.ts';
import { ProtectionChoice } from './protection-choice.tsx';
import { guesses, type Route } from './route.ts';
import { RunView } from './run-view.tsx';
import { useRun } from './use-run.ts';
import { Verdict } from './verdict.tsx';

type StoryRoute = Extract<Route, { page: 'story' }>;

const words: Readonly<Record<string, string>> = {
  safe: 'Both updates survive, or the late one is refused',
  lost: 'An update is lost, though no two clients held the lock at once',
  'two holders': 'An update is lost, because two clients held the lock',
  refused: 'Both clients refuse the storage, and write nothing',
};

/** A story whose steps wait for the reader. */
export function StoryPage({ route }: { readonly route: StoryRoute }) {
  const found = storyOf(route.id);
  const { story, title } = found;
  const { protection, votesAtOnce, guess } = route;
  const steps = found.steps({ protection, votesAtOnce });
  const step = Math.min(route.step, steps.length);
  const run = useRun({ kind: 'story', id: route.id, protection, votesAtOnce }).value;
  const go = (part: Partial<StoryRoute>): void => change('story', part);
  const isOver = step === steps.length;
  const playing = useStep(step);
  return (
    <article class="two">
      <section class="telling">
        <Stories now={route.id} />
        <h1>
          {route.id}. {title}
        </h1>
        <p>{found.setting}</p>
        <ProtectionChoice
          possible={Object.keys(story.pinned) as Protection[]}
          {...{ protection, votesAtOnce }}
          hasForgettingNodes={found.votesAtOnce !== undefined}
          onChange={(choice) => go({ ...choice, step: 0, guess: '' })}
        />
      </section>
      <section class="playing" ref={playing}>
        {guess === '' ? (
          <Prediction {...{ found }} onGuess={(guess) => go({ guess, step: 1 })} />
        ) : (
          <StepControl {...{ steps, step }} onStep={(step) => go({ step })} />
        )}
        {run instanceof Error && <p role="alert">The run failed: {run.message}</p>}
        {run && !(run instanceof Error) && (
          <>
            {isOver && <Verdict {...run.verdict} />}
            <Steps key={`${protection} ${votesAtOnce}`} {...{ run, steps, step, isOver }} />
            {isOver && <End {...{ run, guess, found }} />}
          </>
        )}
      </section>
    </article>
  );
}

function StepControl(props: {
  readonly steps: readonly Told[];
  readonly step: number;
  readonly onStep: (step: number) => void;
}) {
  const { steps, step, onStep } = props;
  const go = (next: number): void => {
    if (next >= 1 && next <= steps.length) onStep(next);
  };
  return (
    <div class="step">
      <p aria-live="polite">
        <span class="note">
          Step {step} of {steps.length}
        </span>{' '}
        {steps[step - 1]?.text}
      </p>
      <p class="buttons">
        {/* A button that is really disabled would lose the focus. */}
        <button type="button" aria-disabled={step <= 1} onClick={() => go(step - 1)}>
          Back
        </button>
        <button
          type="button"
          class="main"
          aria-disabled={step === steps.length}
          onClick={() => go(step + 1)}
        >
          {step === steps.length - 1 ? 'Last step' : 'Next step'}
        </button>
      </p>
    </div>
  );
}

function Stories({ now }: { readonly now: string }) {
  return (
    <nav class="numbers" aria-label="Stories">
      {stories.map(({ id, title }) => (
        <a
          key={id}
          href={`#/story/${id}`}
          aria-current={id === now ? 'page' : undefined}
          {...{ title }}
        >
          {id}
        </a>
      ))}
    </nav>
  );
}

function Prediction(props: {
  readonly found: PageStory;
  readonly onGuess: (guess: string) => void;
}) {
  const { found, onGuess } = props;
  const possible = guesses.filter(
    (guess) => guess !== '' && (guess !== 'refused' || canRefuse(found)),
  );
  return (
    <fieldset class="choice">
      <legend>Your prediction, before it plays</legend>
      <p class="note">
        Two clients each add a line to one document, which is [1, 2] in the end if both updates
        survive. A client holds the lock if most of the lock nodes, A to C or A to E, granted it a
        lease. A lease ends by itself.
      </p>
      <div class="guesses">
        {possible.map((guess) => (
          <button type="button" key={guess} onClick={() => onGuess(guess)}>
            {words[guess]}
          </button>
        ))}
      </div>
    </fieldset>
  );
}

function End(props: { readonly run: Run; readonly guess: string; readonly found: PageStory }) {
  const { run, guess, found } = props;
  const next = stories[stories.indexOf(found) + 1];
  return (
    <section class="end">
      <p>
        {guess === run.verdict.verdict ? 'You predicted it.' : `You predicted: ${words[guess]}.`}
      </p>
      <p class="lesson">
        {found.story.lesson} <a href={addressOf(found)}>Read the paragraph of the article</a>
      </p>
      {next && (
        <p>
          Switch the protection and play again, or go on with{' '}
          <a href={`#/story/${next.id}`}>{next.title}</a>.
        </p>
      )}
    </section>
  );
}

function Steps(props: {
  readonly run: Run;
  readonly steps: readonly Told[];
  readonly step: number;
  readonly isOver: boolean;
}) {
  const { run, steps, step, isOver } = props;
  const told = steps[step - 1];
  const lastMs = isOver ? run.endMs : told ? timeOf(run, told) : 0;
  // The reader may look back, until the next step.
  const seek = useSignal({ step, ms: lastMs });
  const atMs = seek.value.step === step ? seek.value.ms : lastMs;
  const onSeek = (ms: number): void => {
    seek.value = { step, ms };
  };
  return <RunView {...{ run, lastMs, atMs, onSeek }} />;
}
