import { UnsafeStoreError } from '../core/errors.js';
import { publish, type StoreEvents } from '../events.js';
import type { StoreCapabilities } from './capabilities.js';
import { Certificates } from './certificate.js';
import { probe } from './probe.js';
import type { Requests } from './requests.js';
import { type Runtime, unlessAborted } from './runtime.js';
import type { Uploads } from './uploads.js';

/** What is known of the server: by a certificate, else by a probe of our own, once for all callers. */
export class Prober {
  readonly #requests: Requests;
  readonly #uploads: Uploads;
  readonly #runtime: Runtime;
  readonly #prefix: string;
  readonly #certificates: Certificates;
  #capabilities: Promise<StoreCapabilities> | undefined;
  #latest: StoreCapabilities | undefined;
  /** Whether the server must be asked, whatever a certificate says. */
  #isOutdated = false;

  constructor(
    requests: Requests,
    uploads: Uploads,
    runtime: Runtime,
    settings: { readonly probePrefix: string; readonly certificateMaxAgeDays: number },
  ) {
    const { probePrefix, certificateMaxAgeDays } = settings;
    this.#requests = requests;
    this.#uploads = uploads;
    this.#runtime = runtime;
    this.#prefix = probePrefix;
    this.#certificates = new Certificates(requests, probePrefix, certificateMaxAgeDays);
  }

  /** @param renew whether to ask the server again, whatever is known */
  async capabilities(
    options: { readonly signal?: AbortSignal | undefined; readonly renew?: boolean } = {},
  ): Promise<StoreCapabilities> {
    options.signal?.throwIfAborted();
    if (options.renew) this.#outdate();
    this.#capabilities ??= this.#start();
    return unlessAborted(this.#capabilities, options.signal);
  }

  /** Has the next caller ask the server again, unless somebody else has done so since these were learnt. */
  outdated(capabilities: StoreCapabilities): void {
    if (this.#latest === capabilities) this.#outdate();
  }

  #outdate(): void {
    this.#capabilities = undefined;
    this.#latest = undefined;
    this.#isOutdated = true;
  }

  /** All callers share one run, so no caller's signal ends it. */
  async #start(): Promise<StoreCapabilities> {
    const renew = this.#isOutdated;
    this.#isOutdated = false;
    try {
      this.#latest = await this.#learn(renew);
      return this.#latest;
    } catch (error) {
      const verdict = error instanceof UnsafeStoreError ? 'unsafe' : 'unknown';
      this.#publish({ verdict, error });
      this.#isOutdated ||= renew;
      if (!(error instanceof UnsafeStoreError)) this.#capabilities = undefined;
      throw error;
    }
  }

  async #learn(renew: boolean): Promise<StoreCapabilities> {
    const certified = await this.#certificates.read(this.#runtime.nowMs());
    if (certified !== null && !renew) {
      this.#publish({ verdict: 'safe', source: 'certificate', capabilities: certified });
      return certified;
    }
    try {
      const learnt = await probe(this.#requests, this.#uploads, this.#prefix, this.#runtime);
      await this.#certificates.write(learnt);
      this.#publish({ verdict: 'safe', source: 'probe', capabilities: learnt });
      return learnt;
    } catch (error) {
      if (error instanceof UnsafeStoreError) await this.#certificates.remove();
      throw error;
    }
  }

  #publish(facts: Omit<StoreEvents['fenced:store:probed'], 'store' | 'bucket'>): void {
    const { bucket } = this.#requests.sender;
    publish('fenced:store:probed', () => ({ store: 's3', bucket, ...facts }));
  }
}
