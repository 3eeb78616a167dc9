/** The end of a gateway. Gateways that end together share one. */
export class Drain {
  /** Aborted when the drain begins: readiness fails, and waits for leases end. */
  readonly begun: AbortController = new AbortController();
  /** Aborted when its grace is over: running requests are answered with the known outcome. */
  readonly graceOver: AbortController = new AbortController();
}
