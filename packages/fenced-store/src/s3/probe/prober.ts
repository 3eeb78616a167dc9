import type { StoreCapabilities } from '../../core/capabilities.js';
import { UnsafeStoreError, UnsupportedByStoreError } from '../../core/errors.js';
import type { Layout } from '../../core/stored.js';
import { publish, type StoreEvents } from '../../events.js';
import { unlessAborted } from '../runtime.js';
import { Certificates } from './certificate.js';
import type { Probed } from './checks.js';
import { probe } from './probe.js';
import { checkPath, type PathCheck, type WritePath } from './probe-paths.js';

/** The known capabilities of the server: from a certificate, else from a probe for all callers. */
export class Prober {
  readonly #probed: Probed;
  readonly #certificates: Certificates;
  #capabilities: Promise<StoreCapabilities> | undefined;
  #latest: StoreCapabilities | undefined;
  /** The checks of ways of writing (`WritePath`) that the server has passed. */
  #passed: readonly PathCheck[] = [];
  /** The results of the checks of ways of writing, or the runs that will give them. */
  #paths = new Map<PathCheck, Promise<UnsupportedByStoreError | null>>();
  /** True if the server must be asked, whatever a certificate says. */
  #isOutdated = false;

  constructor(probed: Probed, certificateMaxAgeDays: number) {
    this.#probed = probed;
    this.#certificates = new Certificates(probed, certificateMaxAgeDays);
  }

  /** @param options with `renew`, the server is asked again, whatever is known */
  async capabilities(
    options: { readonly signal?: AbortSignal | undefined; readonly renew?: boolean } = {},
  ): Promise<StoreCapabilities> {
    options.signal?.throwIfAborted();
    if (options.renew) this.#outdate();
    this.#capabilities ??= this.#start();
    return unlessAborted(this.#capabilities, options.signal);
  }

  /**
   * Returns the reason why a path cannot be used; null if the server enforces conditions there. If
   * the layout needs different ETags, it must give these, too. Asks before the first use, once for
   * all callers.
   *
   * @throws {StoreUnavailableError} if nothing was learnt; the next call asks again.
   */
  async refusal(
    path: WritePath,
    layout: Layout,
    signal?: AbortSignal,
  ): Promise<UnsupportedByStoreError | null> {
    const capabilities = await this.capabilities({ signal });
    const isUpload = path === 'upload' || path === 'copy';
    if (isUpload && !capabilities.conditionalComplete) return unsupported(path);
    const refused = await this.#verdict(path, capabilities, signal);
    if (refused !== null || layout === 'gzip') return refused;
    return this.#verdict(`${path}-etags`, capabilities, signal);
  }

  /** @throws {UnsupportedByStoreError} if a path cannot be used. */
  async require(path: WritePath, layout: Layout, signal?: AbortSignal): Promise<void> {
    const refused = await this.refusal(path, layout, signal);
    if (refused !== null) throw refused;
  }

  #verdict(
    check: PathCheck,
    capabilities: StoreCapabilities,
    signal?: AbortSignal,
  ): Promise<UnsupportedByStoreError | null> {
    const paths = this.#paths;
    const asked = paths.get(check) ?? this.#ask(check, capabilities);
    paths.set(check, asked);
    // A check that failed has no result, so the next caller runs it again.
    asked.catch(() => paths.delete(check));
    return unlessAborted(asked, signal);
  }

  /**
   * Makes the next caller ask the server again. Does nothing if the server was asked again since it
   * had these capabilities.
   */
  forget(capabilities: StoreCapabilities): void {
    if (this.#latest === capabilities) this.#outdate();
  }

  /**
   * As `forget`, for a reply that contradicts the verdict. The certificate is withdrawn, so that no
   * other process begins with it.
   */
  async withdraw(capabilities: StoreCapabilities): Promise<void> {
    if (this.#latest !== capabilities) return;
    this.#outdate();
    await this.#certificates.fail(this.#probed.runtime.wallClockMs());
  }

  #outdate(): void {
    this.#capabilities = undefined;
    this.#latest = undefined;
    this.#passed = [];
    this.#paths = new Map();
    this.#isOutdated = true;
  }

  /** Runs once for all callers, so no caller's signal ends it. */
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
    const certified = await this.#certificates.read(this.#probed.runtime.wallClockMs());
    if (certified !== null && !renew) {
      const { paths, ...capabilities } = certified;
      this.#passed = paths;
      this.#paths = new Map(paths.map((path) => [path, Promise.resolve(null)]));
      this.#publish({ verdict: 'safe', source: 'certificate', capabilities });
      return capabilities;
    }
    try {
      const learnt = await probe(this.#probed);
      await this.#certificates.write({ ...learnt, paths: [] }, renew);
      this.#publish({ verdict: 'safe', source: 'probe', capabilities: learnt });
      return learnt;
    } catch (error) {
      if (error instanceof UnsafeStoreError)
        await this.#certificates.fail(this.#probed.runtime.wallClockMs());
      throw error;
    }
  }

  /** Runs once for all callers, so no caller's signal ends it. */
  async #ask(
    check: PathCheck,
    capabilities: StoreCapabilities,
  ): Promise<UnsupportedByStoreError | null> {
    try {
      await checkPath(check, this.#probed, capabilities);
    } catch (error) {
      if (error instanceof UnsafeStoreError || error instanceof UnsupportedByStoreError)
        return unsupported(check, error);
      throw error;
    }
    if (this.#latest === capabilities) {
      this.#passed = [...this.#passed, check];
      await this.#certificates.write({ ...capabilities, paths: this.#passed }, false);
    }
    return null;
  }

  #publish(facts: Omit<StoreEvents['fenced:store:probed'], 'store' | 'bucket'>): void {
    const { bucket } = this.#probed.requests.sender;
    publish('fenced:store:probed', () => ({ store: 's3', bucket, ...facts }));
  }
}

/** @throws {UnsupportedByStoreError} if two writes in this layout could have the same ETag. */
export function checkLayout(layout: Layout, { distinctEtags }: StoreCapabilities): void {
  if (layout === 'plain' && !distinctEtags)
    throw new UnsupportedByStoreError(
      "two writes of the same bytes have the same ETag on this server, so that the token must be in the bytes: use the layout 'gzip'",
    );
}

function unsupported(path: PathCheck, cause?: Error): UnsupportedByStoreError {
  if (path.endsWith('-etags') && cause instanceof UnsafeStoreError)
    return new UnsupportedByStoreError(
      `two large writes of the same bytes have the same ETag on this server, so that the token must be in the bytes, and nothing was written: use the layout 'gzip'; write once by update or put what another program stored check=${path}`,
      { cause },
    );
  const check = cause instanceof UnsafeStoreError ? ` check=${cause.check}` : '';
  return new UnsupportedByStoreError(
    `the server does not enforce conditions on such large writes, so nothing was written: store smaller bodies, or use another server path=${path}${check}`,
    { cause },
  );
}
