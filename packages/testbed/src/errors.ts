/**
 * Reason of a failure, and the caller's next step:
 *
 * - `unavailable`: this machine does not have the service. Install the listed packages, or start
 *   Docker.
 * - `environment`: a variable of the environment has a value that does not work. Correct or unset
 *   it.
 * - `start-failed`: the server did not start. The message ends with the last lines of its log.
 * - `not-ours`: the server comes from the environment, so the testbed does not end, pause or start
 *   it.
 */
export type TestbedErrorCode = 'unavailable' | 'environment' | 'start-failed' | 'not-ours';

/** Base class of the errors of the testbed's services. */
export class TestbedError extends Error {
  readonly code: TestbedErrorCode;

  constructor(code: TestbedErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** Neither the environment, nor this machine, nor a Docker engine has the services. */
export class ServiceUnavailableError extends TestbedError {
  constructor(message: string) {
    super('unavailable', message);
  }
}

/** The server was started, and ended or did not answer in time. */
export class ServiceStartError extends TestbedError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('start-failed', message, options);
  }
}
