/** A lease that a client got. The times are true; the clients see only their own clocks. */
export interface Acquisition {
  readonly client: string;
  /** The owner id under which nodes hold it. Empty until the program reads the id. */
  owner: string;
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly beganMs: number;
  readonly returnedMs: number;
  /** The time until which its holder may rely on it. */
  endsMs: number;
}

/** Checks the tokens and leases of one world. */
export class History {
  readonly #isExclusive: boolean;
  readonly #byResource = new Map<string, Acquisition[]>();
  #count = 0;
  #excepted = 0;

  /** @param isExclusive true if two valid leases at once are a violation in this world */
  constructor(isExclusive: boolean) {
    this.#isExclusive = isExclusive;
  }

  get count(): number {
    return this.#count;
  }

  /** The extensions after a later lease that are the exception to the rule; see `extend`. */
  get excepted(): number {
    return this.#excepted;
  }

  /**
   * Records an acquisition when it returns.
   *
   * Invariant: if another acquisition of the resource returned before this one began, its token is
   * lower. No two acquisitions of a resource have the same token.
   *
   * @returns the violation, or null
   */
  add(acquisition: Acquisition): string | null {
    this.#count += 1;
    for (const resource of acquisition.resources) {
      const earlier = this.#byResource.get(resource) ?? [];
      const wrong = earlier.find(
        ({ token, returnedMs }) =>
          token === acquisition.token ||
          (returnedMs < acquisition.beganMs && token > acquisition.token),
      );
      if (wrong) {
        const relation = wrong.token === acquisition.token ? 'the same token as' : 'a token below';
        return `${describe(acquisition)} has ${relation} ${describe(wrong)}`;
      }
      const holder = earlier.find(({ endsMs }) => endsMs > acquisition.returnedMs);
      if (holder && this.#isExclusive) {
        return `${describe(acquisition)} while ${describe(holder)} lasts until ${holder.endsMs.toFixed(3)}`;
      }
      earlier.push(acquisition);
      this.#byResource.set(resource, earlier);
    }
    return null;
  }

  /**
   * Records that an acquisition was extended until `endsMs`.
   *
   * Invariant: a lease is not extended after another client had the lock. An extension fails if an
   * acquisition with a higher token had returned before it began.
   *
   * Exception: a fault excuses two valid leases at once. Also, a node took this lease back by a
   * number, and had granted the other acquisition before it reported that number. See "The
   * exception" in docs/tokens.md.
   *
   * @param number the highest number by which a node took the lease back; 0 if none did
   * @returns the violation, or null
   */
  extend(
    acquisition: Acquisition,
    {
      beganMs,
      endsMs,
      number,
    }: { readonly beganMs: number; readonly endsMs: number; readonly number: bigint },
  ): string | null {
    acquisition.endsMs = Math.max(acquisition.endsMs, endsMs);
    for (const resource of acquisition.resources) {
      const later = (this.#byResource.get(resource) ?? []).filter(
        ({ token, returnedMs }) => token > acquisition.token && returnedMs < beganMs,
      );
      const wrong = later.find(({ token }) => this.#isExclusive || token > number);
      if (later.length > 0 && !wrong) this.#excepted += 1;
      if (wrong) return `${describe(acquisition)} is extended after ${describe(wrong)}`;
    }
    return null;
  }
}

function describe({ client, resources, token, beganMs, returnedMs }: Acquisition): string {
  const times = `${beganMs.toFixed(3)}–${returnedMs.toFixed(3)} ms`;
  return `${client}'s ${token} for ${resources.join('+')} (${times})`;
}
