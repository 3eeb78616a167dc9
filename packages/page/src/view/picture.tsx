import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { leasesIn } from '../../../demo/src/leases.ts';
import type { Message, Run } from '../world/run.ts';
import { BAR_PX, endsOf, GUTTER_PX, LINE_PX, NARROW_PX } from './frame.ts';
import { type Layout, placesOf } from './layout.ts';
import { wholeMs } from './scale.ts';
import type { Word } from './words.ts';

const STOPPED_PX = 17;

/** The names of the lanes. */
export function Heads({ run, layout }: { readonly run: Run; readonly layout: Layout }) {
  const short = layout.width < NARROW_PX;
  return (
    <svg class="heads" width={layout.width} height={28} aria-hidden="true">
      {placesOf(run).map((place) => (
        <text key={place} x={layout.x(place)} y={19} class={`head ${styleOf(place)}`}>
          {place.length === 1 ? place.toUpperCase() : short ? place.replace('client ', 'C') : place}
        </text>
      ))}
    </svg>
  );
}

/**
 * The run until a time, with a cursor. What comes after the cursor is faint. The whole run is drawn
 * once, and the part after `untilMs` is cut off. To draw its thousands of elements for each new
 * time would be slow.
 */
export function Picture(props: Part & { readonly atMs: number; readonly untilMs: number }) {
  const { run, layout, atMs, untilMs } = props;
  const { scale, width } = layout;
  const { height } = scale;
  const [lanes, shapes, texts] = useMemo(() => {
    const drawing = (content: ComponentChildren) => (
      <svg {...{ width, height }} aria-hidden="true">
        {content}
      </svg>
    );
    return [
      drawing(
        placesOf(run).map((place) => <path class="lane" d={`M${layout.x(place)} 4V${height}`} />),
      ),
      drawing([<Bars {...{ run, layout }} />, <Lines layout={layout} />]),
      drawing(<Texts layout={layout} />),
    ];
  }, [run, layout]);
  const textY = (endMs: number): number =>
    (layout.texts.findLast(({ atMs }) => atMs <= endMs)?.y ?? 0) + LINE_PX / 2;
  return (
    <div
      class="picture"
      style={{ width: `${width}px`, height: `${height}px` }}
      role="img"
      aria-label="Lanes of the lock nodes, the clients and the storage. The table has the same events."
    >
      {lanes}
      <div class="until" style={{ height: `${scale.y(untilMs) + 3}px` }}>
        {shapes}
      </div>
      <div class="until" style={{ height: `${textY(untilMs)}px` }}>
        {texts}
      </div>
      <svg {...{ width, height }} aria-hidden="true">
        {layout.labels.map((label, at) => (
          <WordText key={at} {...label} isShown={label.atMs <= untilMs} />
        ))}
      </svg>
      <div
        class="cursor"
        style={{ transform: `translateY(${Math.max(scale.y(atMs), textY(atMs))}px)` }}
      />
    </div>
  );
}

interface Part {
  readonly run: Run;
  readonly layout: Layout;
}

/** Two bars for each lease: what the nodes say, and what its holder believes. */
function Bars({ run, layout }: Part) {
  const { scale, x } = layout;
  const bar = (place: string, style: string, fromMs: number, toMs: number, width = BAR_PX) => {
    const end = Math.min(toMs, run.endMs);
    if (end <= fromMs) return null;
    const y = scale.y(fromMs);
    return (
      <rect
        key={`${place} ${style} ${fromMs}`}
        class={`bar ${style}`}
        {...{ x: x(place) - width / 2, y, width, height: scale.y(end) - y, rx: 3 }}
      />
    );
  };
  return (
    <g>
      {run.leases.map(({ node, client, fromMs, untilMs }) =>
        bar(node, styleOf(client), fromMs, untilMs ?? run.endMs),
      )}
      {leasesIn(run.events).map(({ actor, fromMs, untilMs }) =>
        bar(actor, styleOf(actor), fromMs, untilMs),
      )}
      {run.events
        .filter(({ operation }) => operation === 'pause')
        .map(({ actor, atMs }) => {
          const wake = run.events.find(
            (event) => event.actor === actor && event.operation === 'wake' && event.atMs > atMs,
          );
          return bar(actor, `stopped ${styleOf(actor)}`, atMs, wake?.atMs ?? run.endMs, STOPPED_PX);
        })}
    </g>
  );
}

function Lines({ layout }: Pick<Part, 'layout'>) {
  return layout.messages.map((message, at) => {
    const { x1, y1, x2, y2 } = endsOf(message, layout);
    return (
      <g key={at} class={`message ${message.tone} ${styleOf(clientOf(message))}`}>
        <path d={`M${x1} ${y1}L${x2} ${y2}`} />
        {message.arrivedMs !== null && <circle cx={x2} cy={y2} r={2.5} />}
      </g>
    );
  });
}

function Texts({ layout }: Pick<Part, 'layout'>) {
  const { texts, scale } = layout;
  return (
    <g>
      {[...new Set(texts.map(({ atMs }) => atMs))].map((atMs) => (
        <text key={atMs} class="time" x={GUTTER_PX - 10} y={scale.y(atMs) + 4}>
          {wholeMs(atMs).toLocaleString('en')}
        </text>
      ))}
      {texts.map((word, at) => (
        <WordText key={at} {...word} isShown />
      ))}
    </g>
  );
}

function WordText({ x, y, style, text, isShown }: Word & { readonly isShown: boolean }) {
  return (
    <text class={style} {...{ x, y }} visibility={isShown ? undefined : 'hidden'}>
      {text}
    </text>
  );
}

function clientOf({ from, to }: Message): string {
  return from.startsWith('client') ? from : to;
}

function styleOf(place: string): string {
  return place === 'client 1' ? 'one' : place === 'client 2' ? 'two' : '';
}
