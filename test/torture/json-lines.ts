import type { Operation } from './history.ts';

/** The error of a history that has a line without the facts that the judges need. */
export class HistoryError extends Error {}

const LOCK_KINDS: readonly unknown[] = ['acquire', 'extend', 'release'];
const WRITE_KINDS: readonly unknown[] = ['update', 'put', 'claim'];
const OUTCOMES: readonly unknown[] = ['ok', 'refused', 'failed', 'unknown'];
/** The greatest number that the second judge, a program in Go, can hold. */
const NUMBER_MAX = 2n ** 63n - 1n;

export function toJsonLines(operations: readonly Operation[]): string {
  return operations.map((operation) => `${JSON.stringify(operation)}\n`).join('');
}

/** @throws {HistoryError} names the line */
export function fromJsonLines(text: string): readonly Operation[] {
  return text.split('\n').flatMap((line, at) => (line === '' ? [] : [operationIn(line, at + 1)]));
}

function operationIn(line: string, number: number): Operation {
  try {
    const operation = JSON.parse(line);
    for (const [field, isRight] of Object.entries(FIELDS))
      if (!isRight(Object(operation))) throw new HistoryError(field);
    return operation;
  } catch (error) {
    const why = error instanceof HistoryError ? `${error.message} is missing or wrong` : error;
    throw new HistoryError(`line ${number}: ${why}: ${line}`);
  }
}

type Unchecked = Readonly<Partial<Record<keyof Operation, unknown>>>;

const FIELDS: Readonly<Record<string, (operation: Unchecked) => boolean>> = {
  process: ({ process }) => typeof process === 'string',
  object: ({ object }) => typeof object === 'string',
  kind: ({ kind, object }) =>
    String(object).startsWith('lock/')
      ? LOCK_KINDS.includes(kind)
      : kind === 'read' || WRITE_KINDS.includes(kind),
  outcome: ({ outcome }) => OUTCOMES.includes(outcome),
  callNs: ({ callNs }) => typeof callNs === 'number',
  returnNs: ({ callNs, returnNs, outcome }) =>
    typeof returnNs === 'number'
      ? returnNs >= Number(callNs)
      : returnNs === null && outcome !== 'ok' && outcome !== 'refused',
  token: ({ kind, outcome, token }) =>
    isDigits(token) || (token === undefined && !(kind === 'acquire' && outcome === 'ok')),
  highest: ({ kind, outcome, highest }) =>
    isDigits(highest) ||
    (highest === undefined && !(outcome === 'refused' && WRITE_KINDS.includes(kind))),
  value: ({ value }) => value == null || typeof value === 'string',
  from: ({ from }) => from == null || typeof from === 'string',
};

function isDigits(value: unknown): boolean {
  return typeof value === 'string' && /^\d{1,19}$/.test(value) && BigInt(value) <= NUMBER_MAX;
}
