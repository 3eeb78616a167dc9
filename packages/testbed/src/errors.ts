/**
 * What went wrong, as far as a caller would act differently:
 *
 * - `unavailable`: the service cannot be had here. Install what the message lists, or start Docker.
 * - `environment`: a variable of the environment asks for something that does not work. Mend or unset it.
 * - `start-failed`: the server is here but did not come up. The message ends with the last lines of its log.
 * - `not-ours`: the server was found through the environment, so it is not ours to end, pause or start.
 */
export type TestbedErrorCode = 'unavailable' | 'environment' | 'start-failed' | 'not-ours';

/** Every error of the testbed's services. */
export class TestbedError extends Error {
  readonly code: TestbedErrorCode;

  constructor(code: TestbedErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** Neither the environment nor this machine nor a Docker engine has the services. */
export class ServiceUnavailableError extends TestbedError {
  constructor(message: string) {
    super('unavailable', message);
  }
}

/** The server was started but did not answer in time, or ended. */
export class ServiceStartError extends TestbedError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('start-failed', message, options);
  }
}
