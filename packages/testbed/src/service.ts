import { ServiceUnavailableError, TestbedError } from './errors.js';
import { explainMissing, type Need, type Origin, originsFor, variable } from './needs.js';

export type { Origin };

/** A server to talk to. What we started is ended by `stop`, and in any case when this process ends, however it ends. */
export interface Service extends AsyncDisposable {
  readonly origin: Origin;
  /** Name and version, as the server itself says: `redis-server 7.0.15`. */
  readonly program: string;
  /** Ends what we started and removes its files. Idempotent; does nothing to servers of the environment. */
  stop(): Promise<void>;
}

/** Adds to what a service offers how it was found and how it ends. `parts` are ended in reverse order. */
export function asService<T extends object>(
  how: { readonly origin: Origin; readonly program: string },
  parts: AsyncDisposableStack,
  offers: T,
): T & Service {
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= parts.disposeAsync();
    return stopped;
  };
  return { ...offers, ...how, stop, [Symbol.asyncDispose]: stop };
}

export interface Sources<T, P> {
  /** With the value of the need's variable. */
  readonly environment: (value: string) => Promise<T>;
  /** With what the need found on this machine. */
  readonly program: (found: P) => Promise<T>;
  readonly docker: () => Promise<T>;
}

/**
 * The service from the first origin that has it. An origin that has it but fails is an error, never a reason to go on:
 * whoever set an address or installed a server wants to know that it does not work.
 */
export async function fromFirstOrigin<T, P>(need: Need<P>, sources: Sources<T, P>): Promise<T> {
  const origins = originsFor(need);
  const value = variable(need.variable);
  if (origins.includes('environment') && value !== undefined)
    return await sources.environment(value);
  const found = origins.includes('program') ? need.find() : undefined;
  if (found !== undefined) return await sources.program(found);
  if (origins.includes('docker')) {
    const { dockerAnswers } = await import('./docker-engine.js');
    if (await dockerAnswers()) return await sources.docker();
  }
  throw new ServiceUnavailableError(explainMissing([need]));
}

/** The error for a variable whose server does not do what it should. Passwords in an address are not repeated. */
export function environmentError(name: string, value: string, cause: unknown): TestbedError {
  const shown = URL.canParse(value) ? withoutPassword(new URL(value)) : value;
  const reason = cause instanceof Error ? cause.message || String(cause) : String(cause);
  return new TestbedError(
    'environment',
    `${name}=${shown} does not work: ${reason}. Mend or unset it`,
    {
      cause,
    },
  );
}

function withoutPassword(url: URL): string {
  if (url.password !== '') url.password = '***';
  return url.href;
}
