import { writeSync } from 'node:fs';
import {
  FencedStoreError,
  OutcomeUnknownError,
  StaleTokenError,
  UnsafeStoreError,
} from '@fenced/store';
import { type Event, monotonicMs, type Operation, type Phase } from './history.js';

type Facts = Partial<Omit<Event, 'atMs' | 'actor' | 'operation' | 'phase'>>;

/** What a client tells about itself: one line of JSON an event, on its standard output, at once. */
export function report(operation: Operation, phase: Phase, facts: Facts = {}): void {
  writeSync(1, `${JSON.stringify({ atMs: monotonicMs(), operation, phase, ...facts })}\n`);
}

/** Does one step of the work and reports how it began and ended. */
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

/** An error that the journal has told about: the story goes on without this client. */
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
  // Only our stores say whether a write that failed may have been applied all the same.
  const certain = error instanceof FencedStoreError && !(error instanceof OutcomeUnknownError);
  return certain ? 'refused' : 'unknown';
}
