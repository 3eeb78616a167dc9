/** The end of a gateway. Gateways that end together share one. */
export class Drain {
  /**
   * Aborted when the drain begins: readiness fails, and each answer closes its connection. All
   * requests are still served, because load balancers have not noticed yet.
   */
  readonly begun: AbortController = new AbortController();
  /** Aborted after `drainDelayMs`: no connection is accepted, and waits for leases end. */
  readonly closing: AbortController = new AbortController();
  /**
   * Aborted at the end of the grace period: requests that still run are answered with what is known
   * of their outcome.
   */
  readonly graceOver: AbortController = new AbortController();
}
