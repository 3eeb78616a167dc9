import type { ComponentChildren } from 'preact';
import type { Run } from '../world/run.ts';
import { NARROW_PX } from './frame.ts';
import type { Layout } from './layout.ts';

/** The marks that occur in a picture, and their meanings. */
export function Legend({ run, layout }: { readonly run: Run; readonly layout: Layout }) {
  const { messages, rows } = layout;
  const isLocked = run.leases.length > 0;
  const compares = rows.some(({ place, text }) => place === 'storage' && /[<≥]/.test(text));
  return (
    <details class="legend" open={layout.width >= NARROW_PX}>
      <summary>Legend</summary>
      <dl>
        <Mark
          name="line with a dot"
          meaning="a message of client 1 or of client 2, from its sender to its receiver"
        >
          <g class="message one">
            <path d="M3 4L20 14" />
            <circle cx="20" cy="14" r="2.5" />
          </g>
          <g class="message two">
            <path d="M24 4L41 14" />
            <circle cx="41" cy="14" r="2.5" />
          </g>
        </Mark>
        {messages.some(({ tone }) => tone === 'bad') && (
          <Mark name="dashed line" meaning="a reply that refuses or warns">
            <g class="message bad one">
              <path d="M4 4L40 14" />
              <circle cx="40" cy="14" r="2.5" />
            </g>
          </Mark>
        )}
        {messages.some(({ arrivedMs }) => arrivedMs === null) && (
          <Mark name="✕" meaning="a message that does not arrive">
            <g class="message one">
              <path d="M8 6L26 9" />
            </g>
            <text class="lost" x="28" y="13">
              ✕
            </text>
          </Mark>
        )}
        {isLocked && (
          <Mark
            name="bar"
            meaning="on the lane of a node: the node says that the client holds the lock. On the lane of a client: the client believes that it holds the lock"
          >
            <rect class="bar one" x="8" y="1" width="9" height="16" rx="3" />
            <rect class="bar two" x="27" y="1" width="9" height="16" rx="3" />
          </Mark>
        )}
        {run.events.some(({ operation }) => operation === 'pause') && (
          <Mark name="dashed frame" meaning="the process is stopped">
            <rect class="bar stopped one" x="14" y="1" width="17" height="16" rx="3" />
          </Mark>
        )}
        {run.nodes.length > 0 && (
          <Mark
            name={run.nodes.join(' ').toUpperCase()}
            meaning="the lock nodes: a client to which most of them granted a lease holds the lock"
          />
        )}
        <Mark meaning="the document: the lines of client 1 and client 2" name="[1, 2]" />
        {compares && (
          <Mark
            meaning="the storage compares: the token of the write is lower than the highest one that it has seen"
            name="33 < 34"
          />
        )}
      </dl>
    </details>
  );
}

function Mark(props: {
  readonly name: string;
  readonly meaning: string;
  /** Without it, the name is the mark. */
  readonly children?: ComponentChildren;
}) {
  const { name, meaning, children } = props;
  return (
    <div>
      <dt>
        {children ? (
          <svg width="44" height="18" role="img" aria-label={name}>
            {children}
          </svg>
        ) : (
          name
        )}
      </dt>
      <dd>{meaning}</dd>
    </div>
  );
}
