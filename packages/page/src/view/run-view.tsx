import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import type { Message, Run } from '../world/run.ts';
import { laneAt, layoutOf, messageAt } from './layout.ts';
import { Legend } from './legend.tsx';
import { isStill } from './motion.ts';
import { Heads, Picture } from './picture.tsx';
import type { Row } from './rows.ts';
import { type Scale, wholeMs } from './scale.ts';

const PX_PER_SECOND = 260;

/** A run: its picture until a time, the control of that time, and the table of its events. */
export function RunView(props: {
  readonly run: Run;
  readonly atMs: number;
  readonly onSeek: (ms: number) => void;
  /** If given, the run is hidden after this time, and after `atMs`. */
  readonly lastMs?: number;
  /** Receives the lane and the message that the reader points at. */
  readonly onPick?: (place: string, message: Message | null) => void;
}) {
  const { run, atMs, onSeek, lastMs = run.endMs, onPick } = props;
  const hidesLater = props.lastMs !== undefined;
  const frame = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  // Measures before the first paint, so that nothing moves when the picture comes.
  useLayoutEffect(() => {
    const measure = (): void => {
      width.value = frame.current?.clientWidth ?? 0;
    };
    measure();
    const watch = new ResizeObserver(measure);
    if (frame.current) watch.observe(frame.current);
    return () => watch.disconnect();
  }, [width]);
  const layout = useMemo(() => layoutOf(run, Math.max(width.value, 300)), [run, width.value]);
  const targetMs = Math.min(atMs, lastMs);
  const shown = useMoving(targetMs, layout.scale);
  // The reader's own choice of a time needs no movement.
  const seek = (ms: number): void => {
    shown.value = ms;
    onSeek(ms);
  };
  useEffect(() => {
    // For the keyboard, the time control and the form of faults have the same effect.
    const pick = ({ clientX, clientY }: MouseEvent): void => {
      const picture = frame.current?.querySelector('.picture')?.getBoundingClientRect();
      if (!picture) return;
      const at = { x: clientX - picture.left, y: clientY - picture.top };
      const message = onPick ? messageAt(layout, at) : null;
      seek(Math.min(lastMs, message?.sentMs ?? layout.scale.ms(at.y)));
      onPick?.(laneAt(run, layout, at.x), message);
    };
    const box = frame.current;
    box?.addEventListener('click', pick);
    return () => box?.removeEventListener('click', pick);
  }, [run, layout, lastMs, onSeek, onPick]);
  const shownMs = shown.value;
  useEffect(() => {
    // The newest part of the picture stays in view, below the heads.
    const box = frame.current;
    if (box) box.scrollTop = layout.scale.y(shownMs) - box.clientHeight * 0.75;
  }, [shownMs, layout]);
  return (
    <div class="run">
      <label class="time-control">
        <span>Time</span>
        <input
          type="range"
          {...{ min: 0, max: wholeMs(lastMs), step: 1, value: wholeMs(targetMs) }}
          onInput={({ currentTarget }) => seek(Number(currentTarget.value))}
        />
        <output>{wholeMs(shownMs).toLocaleString('en')} ms</output>
      </label>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: A scrollable region needs the keyboard. */}
      <section class="frame" ref={frame} tabIndex={0} aria-label="Picture of the run">
        {width.value > 0 && (
          <>
            <Heads {...{ run, layout }} />
            <Picture
              {...{ run, layout }}
              atMs={shownMs}
              untilMs={hidesLater ? shownMs : run.endMs}
            />
          </>
        )}
      </section>
      <div class="below">
        <Legend {...{ run, layout }} />
        <Table rows={layout.rows} atMs={targetMs} {...{ hidesLater }} />
      </div>
    </div>
  );
}

/** Moves to a later time at an even speed, and to an earlier one at once. */
function useMoving(targetMs: number, scale: Scale): Signal<number> {
  const shown = useSignal(targetMs);
  useEffect(() => {
    const [fromY, toY] = [scale.y(shown.peek()), scale.y(targetMs)];
    if (isStill() || toY <= fromY) {
      shown.value = targetMs;
      return;
    }
    let [request, beganMs] = [0, 0];
    const move = (nowMs: number): void => {
      beganMs ||= nowMs;
      const y = fromY + ((nowMs - beganMs) / 1_000) * PX_PER_SECOND;
      shown.value = y >= toY ? targetMs : scale.ms(y);
      if (y < toY) request = requestAnimationFrame(move);
    };
    request = requestAnimationFrame(move);
    return () => cancelAnimationFrame(request);
  }, [targetMs, scale, shown]);
  return shown;
}

/** The same events as text. What the picture shows faintly is marked as later. */
function Table(props: {
  readonly rows: readonly Row[];
  readonly atMs: number;
  readonly hidesLater: boolean;
}) {
  const { rows, atMs, hidesLater } = props;
  const isOpen = useSignal(false);
  const cells = useMemo(() => rows.map((row) => <Cells {...row} />), [rows]);
  const count = rows.filter((row) => row.atMs <= atMs).length;
  const ofAll = hidesLater || count === rows.length ? '' : ` of ${rows.length}`;
  return (
    <details
      class="twin"
      onToggle={({ currentTarget }) => {
        isOpen.value = currentTarget.open;
      }}
    >
      <summary>
        Events as a table ({count}
        {ofAll})
      </summary>
      {isOpen.value && (
        <table>
          <caption class="hidden">The events that the picture shows, in the order of time</caption>
          <thead>
            <tr>
              <th scope="col">ms</th>
              <th scope="col">Place</th>
              <th scope="col">Event</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, at) => {
              const isLater = row.atMs > atMs;
              return (
                <tr key={at} hidden={isLater && hidesLater} class={isLater ? 'later' : undefined}>
                  {cells[at]}
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </details>
  );
}

function Cells({ atMs, place, text, tone }: Row) {
  return (
    <>
      <td>{wholeMs(atMs).toLocaleString('en')}</td>
      <td>{place.length === 1 ? `node ${place.toUpperCase()}` : place}</td>
      <td class={tone}>{text}</td>
    </>
  );
}
