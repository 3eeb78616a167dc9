import type { Signal } from '@preact/signals';
import type { Message } from '../world/run.ts';
import {
  describe,
  faultKinds,
  messageFaults,
  nodeFaults,
  type SandboxFault,
} from '../world/sandbox-fault.ts';
import { hasLength, LENGTH_MAX_MS } from './route.ts';

const NODES = ['a', 'b', 'c'] as const;
const PEERS = [...NODES, 's'] as const;

/** The usual length of each kind of fault, in milliseconds. */
export const lengths: Readonly<Record<SandboxFault['kind'], number>> = {
  ...{ pause: 3_000, delay: 3_000, lose: 200, block: 1_000 },
  ...{ wipe: 0, rollback: 1_000, failover: 1_000, jump: 3_600_000 },
  ...{ drop: 0, late: 3_000, twice: 3_000 },
};

/** The time and the words of a fault. */
export function nameOf(fault: SandboxFault): string {
  return `${fault.atMs.toLocaleString('en')} ms: ${describe(fault)}`;
}

interface FaultsProps {
  readonly faults: readonly SandboxFault[];
  /** Whole milliseconds. */
  readonly shownMs: number;
  /** The fault that the next click inflicts. */
  readonly draft: Signal<SandboxFault>;
  readonly onChange: (faults: readonly SandboxFault[]) => void;
}

/** Chooses a fault, and lists those that were inflicted. */
export function FaultForm({ faults, shownMs, draft, onChange }: FaultsProps) {
  const change = (part: Partial<SandboxFault>): void => {
    draft.value = { ...draft.value, ...part };
  };
  const { kind, isReply = false, ms } = draft.value;
  const isPossible = Number.isInteger(ms) && ms >= 0 && ms <= LENGTH_MAX_MS;
  const isOfNode = nodeFaults.has(kind);
  const isOfMessage = messageFaults.has(kind);
  return (
    <fieldset class="choice">
      <legend>Faults</legend>
      <p class="row">
        <Choice
          name="Fault"
          values={faultKinds}
          value={kind}
          onChange={(kind) => {
            draft.value = withKind(draft.value, kind);
          }}
        />
        {!isOfNode && (
          <Choice
            name="Client"
            values={['1', '2'] as const}
            value={draft.value.client === 2 ? '2' : '1'}
            onChange={(client) => change({ client: client === '2' ? 2 : 1 })}
          />
        )}
        {(isOfNode || isOfMessage || kind === 'block') && (
          <Choice
            name={isOfMessage ? 'and' : 'Node'}
            values={isOfMessage ? PEERS : NODES}
            value={draft.value.node}
            onChange={(node) => change({ node })}
          />
        )}
        {isOfMessage && kind !== 'twice' && (
          <Choice
            name="Message"
            values={['request', 'reply'] as const}
            value={isReply ? 'reply' : 'request'}
            onChange={(way) => change({ isReply: way === 'reply' })}
          />
        )}
        {hasLength(kind) && (
          <label>
            for ms{' '}
            <input
              type="number"
              {...{ min: 1, max: LENGTH_MAX_MS, step: 1, value: ms }}
              onInput={({ currentTarget }) => change({ ms: Number(currentTarget.value) || 0 })}
            />
          </label>
        )}
      </p>
      <button
        type="button"
        class="main"
        disabled={!isPossible}
        onClick={() => onChange([...faults, { ...draft.value, atMs: shownMs }])}
      >
        Inflict it at {shownMs.toLocaleString('en')} ms
      </button>
      <p class="note">{describe(draft.value)}</p>
      <ul class="chips">
        {faults.map((fault, at) => (
          <li class="chip" key={`${at} ${fault.kind}`}>
            <span>{nameOf(fault)}</span>
            <button
              type="button"
              aria-label={`Remove: ${nameOf(fault)}`}
              onClick={() => onChange(faults.toSpliced(at, 1))}
            >
              ✕
            </button>
          </li>
        ))}
      </ul>
      {faults.length > 1 && (
        <button type="button" onClick={() => onChange([])}>
          Remove all faults
        </button>
      )}
    </fieldset>
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
            {one === 's' ? 'storage' : one.length === 1 ? one.toUpperCase() : one}
          </option>
        ))}
      </select>
    </label>
  );
}

function withKind(draft: SandboxFault, kind: SandboxFault['kind']): SandboxFault {
  const { isReply, node, ...rest } = draft;
  const isOfMessage = messageFaults.has(kind);
  return {
    ...{ ...rest, kind, ms: lengths[kind] },
    node: node === 's' && !isOfMessage ? 'a' : node,
    ...(isReply && isOfMessage && kind !== 'twice' && { isReply }),
  };
}

/** The draft, moved to the lane or the message that the reader points at. */
export function pointedAt(
  draft: SandboxFault,
  place: string,
  message: Message | null,
): SandboxFault {
  const change = (kind: SandboxFault['kind']): SandboxFault => {
    return kind === draft.kind ? draft : withKind(draft, kind);
  };
  if (message) {
    const isReply = !message.from.startsWith('client');
    const [client, other] = isReply ? [message.to, message.from] : [message.from, message.to];
    const kind = messageFaults.has(draft.kind) ? draft.kind : 'drop';
    const { isReply: _, ...rest } = change(kind === 'twice' && isReply ? 'drop' : kind);
    const node = other === 'storage' ? 's' : other;
    return { ...rest, node, client: client === 'client 2' ? 2 : 1, ...(isReply && { isReply }) };
  }
  if (place === 'storage') return change(draft.kind === 'lose' ? 'lose' : 'delay');
  const isOfNode = nodeFaults.has(draft.kind) || draft.kind === 'block';
  if (place.length === 1) return { ...change(isOfNode ? draft.kind : 'wipe'), node: place };
  const isOfClient = !isOfNode && !messageFaults.has(draft.kind);
  return { ...change(isOfClient ? draft.kind : 'pause'), client: place === 'client 2' ? 2 : 1 };
}
