import type { CarriedOut } from '../../../../test/simulation/connection.ts';
import type { Message } from './run.ts';

/** Commands about the vote of a node, and not about the lock. */
const HOUSEKEEPING = new Set(['inspect', 'promise', 'admit', 'retire', 'status']);

const words: Readonly<Record<string, string>> = {
  'not-voting': 'has no vote',
  'too-early': 'must wait',
  held: 'held',
};

/**
 * The requests to the lock nodes and their replies. Calls that travel together, in one `journey`,
 * share a message.
 */
export function messagesOf(carriedOut: readonly CarriedOut[]): Message[] {
  const journeys = Map.groupBy(carriedOut, ({ journey }) => journey);
  return [...journeys.values()].flatMap((calls) => {
    const [first] = calls;
    return first ? messages(first) : [];
  });
}

function messages({ connection, call, answer, journey, how }: CarriedOut): Message[] {
  const from = connection.computer.name;
  const to = connection.machine.name;
  const isRelease = call.command === 'release';
  const isFaint = HOUSEKEEPING.has(call.command);
  const { sentMs, arrivedMs, repliedMs } = journey;
  const request: Message = {
    from,
    to,
    sentMs,
    arrivedMs,
    label: call.command,
    tone: isFaint ? 'faint' : 'plain',
  };
  if (how === 'late') return [{ ...request, label: `${call.command} again` }];
  if (answer instanceof Error) return [{ ...request, tone: 'faint' }];
  const [word = '', token] = answer.map(String);
  const isGranted = word === 'granted';
  const tone = isGranted ? 'good' : word === 'held' || word === 'not-voting' ? 'bad' : 'plain';
  const reply: Message = {
    from: to,
    to: from,
    sentMs: arrivedMs,
    arrivedMs: repliedMs,
    // The bars show the effect of RELEASE, so its reply has no label.
    label: isGranted ? `granted ${Number(token)}` : isRelease ? '' : (words[word] ?? word),
    tone: isFaint ? 'faint' : tone,
  };
  return [request, reply];
}
