import { ServiceUnavailableError, TestbedError } from './errors.js';
import { explainMissing, type Need, type Origin, originsFor, variable } from './needs.js';

export type { Origin };

/** A running server. If the testbed started it, it ends with `stop` or with this process. */
export interface Service extends AsyncDisposable {
  readonly origin: Origin;
  /** Name and version, as the server reports them: `redis-server 7.0.15`. */
  readonly program: string;
  /** Ends the server and removes its files, unless it comes from the environment. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Adds an origin and an end to `offers`. The end of the service disposes `parts`, in reverse order.
 */
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
  /** @param value of the need's variable */
  readonly environment: (value: string) => Promise<T>;
  /** @param found the programs that the need has found on this machine */
  readonly program: (found: P) => Promise<T>;
  readonly docker: () => Promise<T>;
}

/**
 * Starts the service from the first origin that has it. If that origin fails, no other is tried.
 * A user who installed a server wants to know that it does not work.
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

/** The error for a variable whose server does not work. It hides passwords. */
export function environmentError(name: string, value: string, cause: unknown): TestbedError {
  const shown = URL.canParse(value) ? withoutPassword(new URL(value)) : value;
  const reason = cause instanceof Error ? cause.message || String(cause) : String(cause);
  return new TestbedError(
    'environment',
    `${name}=${shown} does not work: ${reason}. Correct or unset it`,
    {
      cause,
    },
  );
}

function withoutPassword(url: URL): string {
  if (url.password !== '') url.password = '***';
  return url.href;
}
