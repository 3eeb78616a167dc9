import { type Signal, useSignal } from '@preact/signals';
import { protections } from '../../../demo/src/job.ts';
import { describe, faultKinds, type SandboxFault } from '../world/sandbox-fault.ts';
import { ProtectionChoice } from './protection-choice.tsx';
import { linkTo, type Route } from './route.ts';
import { RunView } from './run-view.tsx';
import { useRun } from './use-run.ts';
import { Verdict } from './verdict.tsx';

type SandboxRoute = Extract<Route, { page: 'sandbox' }>;

const MOVE_MS = 50;

const lengths: Readonly<Record<SandboxFault['kind'], number>> = {
  pause: 3_000,
  delay: 3_000,
  lose: 200,
  block: 1_000,
  wipe: 0,
  jump: 3_600_000,
};

/** Two clients, three nodes, one document, and the faults that the reader inflicts. */
export function SandboxPage({ route }: { readonly route: SandboxRoute }) {
  const { seed, protection, votesAtOnce, faults, atMs } = route;
  const result = useRun({ kind: 'sandbox', seed, protection, votesAtOnce, faults }).value;
  const seek = useSignal<number | null>(null);
  const draft = useSignal<SandboxFault>({
    ...{ kind: 'pause', client: 1, node: 'a', atMs: 0, ms: lengths.pause },
  });
  const run = result instanceof Error ? null : result;
  const shownMs = seek.value ?? (atMs || run?.endMs || 0);
  const go = (change: Partial<SandboxRoute>): void => {
    const next = { ...route, atMs: Math.round(shownMs), ...change };
    location.hash = linkTo(next);
  };
  return (
    <article class="two">
      <section class="telling">
        <h1>Sandbox</h1>
        <p>
          Each client adds its line to the document once. Its lease lasts 2 s. Click a lane to
          choose a time and a place, and inflict faults until the checker says that an update is
          lost. Then switch the protection.
        </p>
        {run && <Verdict {...run.verdict} />}
        {result instanceof Error && <p role="alert">The run failed: {result.message}</p>}
        <ProtectionChoice
          possible={protections}
          {...{ protection, votesAtOnce }}
          hasForgettingNodes
          onChange={go}
        />
        <Seed seed={seed} onChange={(seed) => go({ seed, atMs: 0 })} />
        <Faults {...{ faults, shownMs, draft }} onChange={(faults) => go({ faults })} />
        <p class="note">The address of this page contains the whole run. Copy it to share it.</p>
      </section>
      {run && (
        <RunView
          {...{ run }}
          atMs={shownMs}
          onSeek={(ms) => {
            seek.value = ms;
          }}
          onPick={(place) => {
            draft.value = pointedAt(draft.value, place);
          }}
        />
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

interface FaultsProps {
  readonly faults: readonly SandboxFault[];
  readonly shownMs: number;
  /** The fault that the next click inflicts. */
  readonly draft: Signal<SandboxFault>;
  readonly onChange: (faults: readonly SandboxFault[]) => void;
}

function Faults({ faults, shownMs, draft, onChange }: FaultsProps) {
  const change = (part: Partial<SandboxFault>): void => {
    draft.value = { ...draft.value, ...part };
  };
  const { kind } = draft.value;
  const isOfNode = kind === 'wipe' || kind === 'jump';
  return (
    <fieldset class="choice">
      <legend>Faults</legend>
      <p class="row">
        <Choice
          name="Fault"
          values={faultKinds}
          value={kind}
          onChange={(kind) => change({ kind, ms: lengths[kind] })}
        />
        {!isOfNode && (
          <Choice
            name="Client"
            values={['1', '2'] as const}
            value={draft.value.client === 2 ? '2' : '1'}
            onChange={(client) => change({ client: client === '2' ? 2 : 1 })}
          />
        )}
        {(isOfNode || kind === 'block') && (
          <Choice
            name="Node"
            values={['a', 'b', 'c'] as const}
            value={draft.value.node}
            onChange={(node) => change({ node })}
          />
        )}
        {kind !== 'wipe' && (
          <label>
            for ms{' '}
            <input
              type="number"
              {...{ min: 1, max: 3_600_000, step: 1, value: draft.value.ms }}
              onInput={({ currentTarget }) => change({ ms: Number(currentTarget.value) || 0 })}
            />
          </label>
        )}
      </p>
      <button
        type="button"
        class="main"
        onClick={() =>
          onChange([...faults, { ...draft.value, atMs: Math.round(shownMs) }].sort(byTime))
        }
      >
        Inflict it at {Math.round(shownMs).toLocaleString('en')} ms
      </button>
      <ul class="chips">
        {faults.map((fault, at) => (
          <Chip
            key={`${at} ${fault.kind}`}
            fault={fault}
            onMove={(byMs) =>
              onChange(
                faults.with(at, { ...fault, atMs: Math.max(0, fault.atMs + byMs) }).sort(byTime),
              )
            }
            onRemove={() => onChange(faults.toSpliced(at, 1))}
          />
        ))}
      </ul>
    </fieldset>
  );
}

function Chip(props: {
  readonly fault: SandboxFault;
  readonly onMove: (byMs: number) => void;
  readonly onRemove: () => void;
}) {
  const { fault, onMove, onRemove } = props;
  const name = `${fault.atMs.toLocaleString('en')} ms: ${describe(fault)}`;
  return (
    <li class="chip">
      <button type="button" aria-label={`Earlier: ${name}`} onClick={() => onMove(-MOVE_MS)}>
        ◀
      </button>
      <span>{name}</span>
      <button type="button" aria-label={`Later: ${name}`} onClick={() => onMove(MOVE_MS)}>
        ▶
      </button>
      <button type="button" aria-label={`Remove: ${name}`} onClick={onRemove}>
        ✕
      </button>
    </li>
  );
}

function Choice<Value extends string>(props: {
  readonly name: string;
  readonly values: readonly Value[];
  readonly value: string;
  readonly onChange: (value: Value) => void;
}) {
  const { name, values, value, onChange } = props;
  return (
    <label>
      {name}{' '}
      <select
        value={value}
        onChange={({ currentTarget }) => {
          const chosen = values.find((one) => one === currentTarget.value);
          if (chosen !== undefined) onChange(chosen);
        }}
      >
        {values.map((one) => (
          <option key={one} value={one}>
            {one.length === 1 ? one.toUpperCase() : one}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The draft, moved to the lane that the reader points at. */
function pointedAt(draft: SandboxFault, place: string): SandboxFault {
  const change = (kind: SandboxFault['kind']): SandboxFault => {
    return kind === draft.kind ? draft : { ...draft, kind, ms: lengths[kind] };
  };
  if (place === 'storage') return change(draft.kind === 'lose' ? 'lose' : 'delay');
  const isOfNode = ['block', 'wipe', 'jump'].includes(draft.kind);
  if (place.length === 1) return { ...change(isOfNode ? draft.kind : 'wipe'), node: place };
  return { ...change(isOfNode ? 'pause' : draft.kind), client: place === 'client 2' ? 2 : 1 };
}

function byTime(a: SandboxFault, b: SandboxFault): number {
  return a.atMs - b.atMs;
}
