import { useSignal } from '@preact/signals';
import { protections } from '../../../demo/src/job.ts';
import type { SandboxFault } from '../world/sandbox-fault.ts';
import { FaultAxis } from './fault-axis.tsx';
import { FaultForm, lengths, pointedAt } from './fault-form.tsx';
import { change } from './navigation.ts';
import { ProtectionChoice } from './protection-choice.tsx';
import type { Route } from './route.ts';
import { RunView } from './run-view.tsx';
import { wholeMs } from './scale.ts';
import { useRun } from './use-run.ts';
import { Verdict } from './verdict.tsx';

type SandboxRoute = Extract<Route, { page: 'sandbox' }>;

/**
 * Two clients, three nodes, one document, and the faults that the reader inflicts. The picture comes
 * before the form, so that a phone shows the effect of an action beside the action.
 */
export function SandboxPage({ route }: { readonly route: SandboxRoute }) {
  const { seed, protection, votesAtOnce, faults, atMs } = route;
  const result = useRun({ kind: 'sandbox', seed, protection, votesAtOnce, faults }).value;
  const seek = useSignal<number | null>(null);
  const draft = useSignal<SandboxFault>({
    ...{ kind: 'pause', client: 1, node: 'a', atMs: 0, ms: lengths.pause },
  });
  const run = result instanceof Error ? null : result;
  const shownMs = wholeMs(seek.value ?? (atMs || run?.endMs || 0));
  const go = (part: Partial<SandboxRoute>): void => change('sandbox', { atMs: shownMs, ...part });
  return (
    <article class="two sandbox">
      <section class="telling">
        <h1>Sandbox</h1>
        <p>
          Each client adds its line to the document once. Its lease lasts 2 s. Click a lane to
          choose a time and a place, or click a message. Inflict faults until the checker says that
          an update is lost. Then switch the protection, and try again.
        </p>
        <div class="outcome">
          {run && <Verdict {...run.verdict} />}
          {result instanceof Error && <p role="alert">The run failed: {result.message}</p>}
        </div>
      </section>
      {run && (
        <div class="playing">
          <FaultAxis {...{ faults }} endMs={run.endMs} onChange={(faults) => go({ faults })} />
          <RunView
            {...{ run }}
            atMs={shownMs}
            onSeek={(ms) => {
              seek.value = ms;
            }}
            onPick={(place, message) => {
              draft.value = pointedAt(draft.value, place, message);
            }}
          />
        </div>
      )}
      {/* Only beside a run: the picture, if it came later, would push these forms down. */}
      {result && (
        <section class="actions">
          <FaultForm {...{ faults, shownMs, draft }} onChange={(faults) => go({ faults })} />
          <ProtectionChoice
            possible={protections}
            {...{ protection, votesAtOnce }}
            hasForgettingNodes
            onChange={go}
          />
          <Seed seed={seed} onChange={(seed) => go({ seed, atMs: 0 })} />
          <p class="note">The address of this page contains the whole run. Copy it to share it.</p>
        </section>
      )}
    </article>
  );
}

function Seed(props: { readonly seed: number; readonly onChange: (seed: number) => void }) {
  const { seed, onChange } = props;
  return (
    <p class="row">
      <label>
        Seed{' '}
        <input
          type="number"
          {...{ min: 0, step: 1, value: seed }}
          onChange={({ currentTarget }) => {
            const value = Number(currentTarget.value);
            if (Number.isSafeInteger(value) && value >= 0) onChange(value);
          }}
        />
      </label>
      <button type="button" onClick={() => onChange(seed + 1)}>
        Next seed
      </button>
    </p>
  );
}
