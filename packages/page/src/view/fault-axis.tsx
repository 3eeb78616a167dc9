import { useSignal } from '@preact/signals';
import type { SandboxFault } from '../world/sandbox-fault.ts';
import { nameOf } from './fault-form.tsx';
import { stack } from './stack.ts';

const STEP_MS = 50;
const LEAP_MS = 500;
const KEYS: Readonly<Record<string, number>> = {
  ...{ ArrowLeft: -STEP_MS, ArrowDown: -STEP_MS, ArrowRight: STEP_MS, ArrowUp: STEP_MS },
  ...{ PageDown: -LEAP_MS, PageUp: LEAP_MS },
};

/**
 * The faults as chips on the time axis. A dragged chip changes the time of its fault, and the run
 * from there on.
 */
export function FaultAxis(props: {
  readonly faults: readonly SandboxFault[];
  readonly endMs: number;
  readonly onChange: (faults: readonly SandboxFault[]) => void;
}) {
  const { faults, endMs, onChange } = props;
  const dragged = useSignal<{ readonly at: number; readonly ms: number } | null>(null);
  if (faults.length === 0) return null;
  // The end of the run may come before a fault.
  const lastMs = Math.max(endMs, ...faults.map(({ atMs }) => atMs));
  const rows = stack(
    faults.map(({ atMs }) => atMs),
    lastMs,
  );
  const move = (at: number, ms: number): void => {
    const atMs = Math.round(Math.min(lastMs, Math.max(0, ms)));
    onChange(faults.map((fault, index) => (index === at ? { ...fault, atMs } : fault)));
  };
  const timeAt = (event: PointerEvent): number => {
    const axis = (event.currentTarget as Element).parentElement?.getBoundingClientRect();
    return axis ? ((event.clientX - axis.left) / axis.width) * lastMs : 0;
  };
  return (
    <div class="axis" style={{ height: `${2 * (Math.max(...rows) + 1)}rem` }}>
      {faults.map((fault, at) => {
        const ms = dragged.value?.at === at ? dragged.value.ms : fault.atMs;
        return (
          <span
            key={`${at} ${fault.kind}`}
            class="handle"
            role="slider"
            tabIndex={0}
            aria-label={nameOf(fault)}
            aria-valuemin={0}
            aria-valuemax={Math.ceil(lastMs)}
            aria-valuenow={Math.round(ms)}
            style={{
              left: `${(Math.min(Math.max(ms, 0), lastMs) / lastMs) * 100}%`,
              bottom: `${2 * (rows[at] ?? 0) + 0.2}rem`,
            }}
            onKeyDown={(event) => {
              const byMs = KEYS[event.key];
              if (byMs === undefined) return;
              event.preventDefault();
              move(at, fault.atMs + byMs);
            }}
            onPointerDown={(event) => {
              event.currentTarget.setPointerCapture(event.pointerId);
              dragged.value = { at, ms: fault.atMs };
            }}
            onPointerMove={(event) => {
              if (dragged.value?.at === at) dragged.value = { at, ms: timeAt(event) };
            }}
            onPointerUp={(event) => {
              if (dragged.value?.at !== at) return;
              dragged.value = null;
              move(at, timeAt(event));
            }}
          >
            {fault.kind}
          </span>
        );
      })}
    </div>
  );
}
