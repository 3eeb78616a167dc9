import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { leasesIn } from '../../../demo/src/leases.ts';
import type { Message, Run } from '../world/run.ts';
import { type Row, rowsOf, withoutRepeats } from './rows.ts';
import { type Scale, scaleOf } from './scale.ts';

const GUTTER_PX = 46;
const BAR_PX = 9;
/** A click this near to a line means it. */
const NEAR_PX = 6;
const STOPPED_PX = 17;
/** Slope of a message that does not arrive. */
const LOST_PX = 4;
const LINE_PX = 15;
/** An upper bound for the mean width of a letter. */
const LETTER_PX = 7;
/** Below this width, texts are shortened. */
const NARROW_PX = 560;
/** Messages with the same label that are nearer than this share one label. */
const SAME_MS = 40;

export interface Layout {
  readonly width: number;
  readonly x: (place: string) => number;
  readonly scale: Scale;
  readonly rows: readonly Row[];
  readonly messages: readonly Message[];
}

/** The lanes, from left to right: lock nodes, clients, storage. */
function placesOf(run: Run): readonly string[] {
  return [...run.nodes, 'client 1', 'client 2', 'storage'];
}

export function layoutOf(run: Run, width: number): Layout {
  const rows = rowsOf(run);
  const messages = withoutRepeats(run).filter(({ tone }) => tone !== 'faint');
  const heights = new Map<number, number>();
  for (const { atMs } of rows) heights.set(atMs, (heights.get(atMs) ?? 4) + LINE_PX);
  const scale = scaleOf({ ...run, messages }, heights);
  const places = placesOf(run);
  const room = width - GUTTER_PX - 24;
  // Nodes need less room than clients, because their texts are beside the clients.
  const nodes = room * (run.nodes.length > 3 ? 0.42 : 0.34);
  const x = (place: string): number => {
    const at = run.nodes.indexOf(place);
    if (at !== -1) return GUTTER_PX + (nodes * (at + 0.5)) / run.nodes.length;
    const others = places.slice(run.nodes.length);
    const step = (room - nodes) / others.length;
    return GUTTER_PX + nodes + step * (Math.max(0, others.indexOf(place)) + 0.62);
  };
  return { width, x, scale, rows, messages };
}

/** The lane that is nearest to a position. */
export function laneAt(run: Run, { x }: Layout, at: number): string {
  const places = placesOf(run);
  const distance = (place: string): number => Math.abs(x(place) - at);
  return places.reduce((best, place) => (distance(place) < distance(best) ? place : best));
}

/** The message whose line is within a few pixels of a position, or null. */
export function messageAt({ x, scale, messages }: Layout, at: { x: number; y: number }) {
  const distance = ({ from, to, sentMs, arrivedMs }: Message): number => {
    const [x1, y1, x2, y2] = [x(from), scale.y(sentMs), x(to), scale.y(arrivedMs ?? sentMs)];
    const length = (x2 - x1) ** 2 + (y2 - y1) ** 2 || 1;
    const share = ((at.x - x1) * (x2 - x1) + (at.y - y1) * (y2 - y1)) / length;
    const nearest = Math.min(1, Math.max(0, share));
    return Math.hypot(at.x - x1 - nearest * (x2 - x1), at.y - y1 - nearest * (y2 - y1));
  };
  const near = messages
    .map((message) => ({ message, px: distance(message) }))
    .sort((a, b) => a.px - b.px);
  // A click at the end of a line is for the lane.
  const isAtLane = (place: string): boolean => Math.abs(x(place) - at.x) < NEAR_PX;
  const [best] = near;
  if (!best || best.px > NEAR_PX) return null;
  return isAtLane(best.message.from) || isAtLane(best.message.to) ? null : best.message;
}

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
 * The run until a time. The whole run is drawn once, and what comes later is cut off: a run of a
 * thousand steps has six thousand elements.
 */
export function Picture(props: Part & { readonly untilMs: number }) {
  const { run, layout, untilMs } = props;
  const { scale, width, rows } = layout;
  const { height } = scale;
  const [lanes, shapes, words] = useMemo(() => {
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
      drawing([<Labels layout={layout} />, <Texts layout={layout} />]),
    ];
  }, [run, layout]);
  const endY = scale.y(untilMs);
  const textMs = rows.findLast(({ atMs }) => atMs <= untilMs)?.atMs;
  const texts = rows.filter(({ atMs }) => atMs === textMs).length;
  const textY = scale.y(textMs ?? 0) + texts * LINE_PX - 5;
  return (
    <div
      class="picture"
      style={{ width: `${width}px`, height: `${height}px` }}
      role="img"
      aria-label="Lanes of the lock nodes, the clients and the storage. The table has the same events."
    >
      {lanes}
      <div class="until" style={{ height: `${endY + 3}px` }}>
        {shapes}
      </div>
      <div class="until" style={{ height: `${Math.max(endY + 10, textY)}px` }}>
        {words}
      </div>
      <div class="cursor" style={{ transform: `translateY(${endY}px)` }} />
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

/** The two ends of a message. One that does not arrive ends half way. */
function endsOf({ from, to, sentMs, arrivedMs }: Message, { x, scale }: Layout) {
  const [x1, y1] = [x(from), scale.y(sentMs)];
  if (arrivedMs === null) return { x1, y1, x2: (x1 + x(to)) / 2, y2: y1 + LOST_PX };
  return { x1, y1, x2: x(to), y2: scale.y(arrivedMs) };
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

function Labels({ layout }: Pick<Part, 'layout'>) {
  const labelled = new Map<string, number>();
  return layout.messages.map((message, at) => {
    const { from, to, sentMs, arrivedMs, label } = message;
    const { x1, y1, x2, y2 } = endsOf(message, layout);
    const key = `${from.length === 1 ? to : from} ${label}`;
    const isNew = sentMs - (labelled.get(key) ?? Number.NEGATIVE_INFINITY) > SAME_MS;
    if (isNew) labelled.set(key, sentMs);
    return (
      <g key={at}>
        {arrivedMs === null && (
          <text x={x2} y={y2 + 4} class="lost">
            ✕
          </text>
        )}
        {isNew && from !== 'storage' && label !== 'read' && (
          <text class="label" x={(x1 + layout.x(to)) / 2} y={(y1 + y2) / 2 + 3}>
            {label}
          </text>
        )}
      </g>
    );
  });
}

function Texts({ layout }: Pick<Part, 'layout'>) {
  const { scale, rows } = layout;
  return (
    <g>
      {[...Map.groupBy(rows, ({ atMs }) => atMs)].map(([atMs, same]) => (
        <g key={atMs}>
          <text class="time" x={GUTTER_PX - 10} y={scale.y(atMs) + 4}>
            {Math.round(atMs).toLocaleString('en')}
          </text>
          {same.map((row, at) => (
            <EventText key={row.text} {...{ layout, row }} y={scale.y(atMs) + 4 + at * LINE_PX} />
          ))}
        </g>
      ))}
    </g>
  );
}

function EventText(props: { readonly layout: Layout; readonly row: Row; readonly y: number }) {
  const { layout, row, y } = props;
  const { x, width } = layout;
  const { place, text, tone } = row;
  const isNode = place === 'lock nodes' || place.length === 1;
  // The table has the whole text.
  const shown = width < NARROW_PX ? text.replace(/^no lock: .*/, 'no lock') : text;
  const endX = x(place) + BAR_PX + shown.length * LETTER_PX;
  const isRight = place === 'storage' || (!isNode && endX > width);
  const left = isNode ? GUTTER_PX : x(place) + (isRight ? -BAR_PX : BAR_PX);
  return (
    <text class={`event ${tone}${isRight ? ' right' : ''}`} x={left} y={y}>
      {shown}
    </text>
  );
}

function clientOf({ from, to }: Message): string {
  return from.startsWith('client') ? from : to;
}

function styleOf(place: string): string {
  return place === 'client 1' ? 'one' : place === 'client 2' ? 'two' : '';
}
