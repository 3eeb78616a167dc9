/** A lease that a client was given. Times are true ones; the clients have only their own clocks. */
export interface Acquisition {
  readonly client: string;
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly beganMs: number;
  readonly returnedMs: number;
  /** Until when its holder may rely on it. */
  endsMs: number;
}

/** All acquisitions of one world, and what of them must never be. */
export class History {
  readonly #isExclusive: boolean;
  readonly #byResource = new Map<string, Acquisition[]>();
  #count = 0;

  /** @param isExclusive whether nothing happens in this world that may let two hold a lease at once */
  constructor(isExclusive: boolean) {
    this.#isExclusive = isExclusive;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Takes an acquisition down as it returns.
   *
   * Invariant: a token is above those of all acquisitions of the resource that returned before this one began, and no two
   * acquisitions of a resource have the same.
   *
   * @returns what is wrong with it, or null
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
   * Takes down that an acquisition was extended until `endsMs`.
   *
   * Invariant: a lease that somebody else has had in between is not extended. An extension fails if another acquisition with a
   * higher token had returned before it began.
   *
   * @returns what is wrong with it, or null
   */
  extend(acquisition: Acquisition, beganMs: number, endsMs: number): string | null {
    acquisition.endsMs = Math.max(acquisition.endsMs, endsMs);
    for (const resource of acquisition.resources) {
      const wrong = (this.#byResource.get(resource) ?? []).find(
        ({ token, returnedMs }) => token > acquisition.token && returnedMs < beganMs,
      );
      if (wrong) return `${describe(acquisition)} is extended after ${describe(wrong)}`;
    }
    return null;
  }
}

function describe({ client, resources, token, beganMs, returnedMs }: Acquisition): string {
  const times = `${beganMs.toFixed(3)}–${returnedMs.toFixed(3)} ms`;
  return `${client}'s ${token} for ${resources.join('+')} (${times})`;
}
