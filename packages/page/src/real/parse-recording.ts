import { protections } from '../../../demo/src/job.ts';
import { FORMAT, type Recording } from '../../../demo/src/web/recording.ts';

const CHARACTERS_MAX = 5_000_000;
const LIST_MAX = 20_000;
const TEXT_MAX = 1_000;
const NODE = /^[a-z]$/;

/** A text that is no recorded run. The message says what is wrong. */
export class RecordingError extends Error {}

type Fields = Readonly<Record<string, unknown>>;

/** @throws {RecordingError} if the text is no recorded run */
export function parseRecording(text: string): Recording {
  if (text.length > CHARACTERS_MAX)
    throw new RecordingError(`it has ${text.length} characters; at most ${CHARACTERS_MAX}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new RecordingError('it is no JSON');
  }
  const fields = fieldsOf('the recording', value);
  if (fields.format !== FORMAT) throw new RecordingError(`its format is not ${FORMAT}`);
  for (const name of ['date', 'commit', 'sha256']) string(name, fields[name]);
  time('endMs', fields.endMs);
  for (const [name, one] of Object.entries(fieldsOf('machine', fields.machine))) string(name, one);
  const { story, ...words } = fieldsOf('variant', fields.variant);
  if (story !== null) time('story', story);
  for (const name of ['title', 'lock', 'store']) string(name, words[name]);
  if (!protections.some((one) => one === words.protection))
    throw new RecordingError('protection is unknown');
  for (const node of list('nodes', fields.nodes)) matching('a node', node, NODE);
  for (const event of list('events', fields.events)) checkEvent(fieldsOf('an event', event));
  for (const one of list('leases', fields.leases)) {
    const { node, token, fromMs, untilMs } = fieldsOf('a lease', one);
    matching('the node of a lease', node, NODE);
    if (token !== null) matching('the token of a lease', token, /^\d{1,19}$/);
    time('the begin of a lease', fromMs);
    if (untilMs !== null) time('the end of a lease', untilMs);
  }
  const { verdict, reason } = fieldsOf('verdict', fields.verdict);
  string('verdict', verdict);
  string('reason', reason);
  return value as Recording;
}

function checkEvent({
  atMs,
  actor,
  operation,
  phase,
  validMs,
  lines,
  token,
  highest,
  reason,
}: Fields) {
  time('the time of an event', atMs);
  matching('the actor of an event', actor, /^(client [12]|lock nodes|storage|gateway A)$/);
  string('operation', operation);
  matching('the phase of an event', phase, /^(invoke|ok|refused|unknown|failed)$/);
  if (validMs !== undefined) time('validMs', validMs);
  if (lines !== undefined) for (const line of list('lines', lines)) string('a line', line);
  for (const number of [token, highest])
    if (number !== undefined) matching('a token', number, /^\d{1,19}$/);
  if (reason !== undefined) string('reason', reason);
}

function fieldsOf(name: string, value: unknown): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw new RecordingError(`${name} must be an object`);
}

function list(name: string, value: unknown): readonly unknown[] {
  if (Array.isArray(value) && value.length <= LIST_MAX) return value;
  throw new RecordingError(`${name} must be a list of at most ${LIST_MAX}`);
}

function string(name: string, value: unknown): void {
  if (typeof value === 'string' && value.length <= TEXT_MAX) return;
  throw new RecordingError(`${name} must be a text of at most ${TEXT_MAX} characters`);
}

function matching(name: string, value: unknown, pattern: RegExp): void {
  if (typeof value !== 'string' || !pattern.test(value))
    throw new RecordingError(`${name} is not valid`);
}

function time(name: string, value: unknown): void {
  if (typeof value === 'number' && value > -10_000 && value < 10_000_000) return;
  throw new RecordingError(`${name} must be a number of milliseconds`);
}
