/** The status that nginx logs for a client that closed its connection. It is never sent. */
export const CLIENT_GONE = 499;

/** The facts about a request that has ended, for log and metrics. */
export interface EndedRequest {
  readonly id: string;
  readonly method: string;
  /**
   * The path in its canonical encoding, without the query. A malformed path is as the client sent
   * it.
   */
  readonly path: string;
  readonly address: string | null;
  /** As the OpenAPI document names it, `/v1/objects/{key}`; null without a route. */
  readonly route: string | null;
  /**
   * The resource for which the caller needed a right. For a lease set: all resources,
   * percent-encoded, with commas between.
   */
  readonly resource: string | null;
  readonly caller: string | null;
  /** 499 if the client closed its connection before the end of the answer. */
  readonly status: number;
  /** `ok`, the code of a problem, `not-ready`, or `client-gone` with status 499. */
  readonly outcome: string;
  /** The token that was issued, presented or found, without its signature. */
  readonly token: bigint | null;
  /** The write that was sent to the store, as `/v1/writes` names it. */
  readonly writeId: string | null;
  readonly durationMs: number;
  readonly traceparent: string | null;
  /** The cause of a failure. */
  readonly error: unknown;
}
