import { writeSync } from 'node:fs';
import {
  FencedStoreError,
  OutcomeUnknownError,
  StaleTokenError,
  UnsafeStoreError,
} from '@fenced/store';
import { type Event, monotonicMs, type Operation, type Phase } from './history.js';

type Facts = Partial<Omit<Event, 'atMs' | 'actor' | 'operation' | 'phase'>>;

/** Writes an event to standard output at once, as one line of JSON. */
export function report(operation: Operation, phase: Phase, facts: Facts = {}): void {
  writeSync(1, `${JSON.stringify({ atMs: monotonicMs(), operation, phase, ...facts })}\n`);
}

/** Runs one step of the work, and reports how it begins and ends. */
export async function step<Result>(
  operation: Operation,
  work: () => Promise<Result>,
  facts: (result: Result) => Facts = () => ({}),
): Promise<Result> {
  report(operation, 'invoke');
  try {
    const result = await work();
    report(operation, 'ok', facts(result));
    return result;
  } catch (error) {
    report(operation, phaseOf(operation, error), {
      reason: error instanceof Error ? error.message : String(error),
      ...(error instanceof StaleTokenError && { highest: error.highest.toString() }),
    });
    throw new Reported(error);
  }
}

/** An error that is in the journal already. It ends this client, not the story. */
export class Reported extends Error {
  constructor(cause?: unknown) {
    super('reported', { cause });
    this.name = new.target.name;
  }
}

function phaseOf(operation: Operation, error: unknown): Phase {
  if (error instanceof Reported) return 'failed';
  const isRefused = error instanceof StaleTokenError || error instanceof UnsafeStoreError;
  if (operation !== 'write') return isRefused ? 'refused' : 'failed';
  // A failed write may have been applied, unless a store of `@fenced/store` reports that it was
  // not.
  const certain = error instanceof FencedStoreError && !(error instanceof OutcomeUnknownError);
  return certain ? 'refused' : 'unknown';
}
