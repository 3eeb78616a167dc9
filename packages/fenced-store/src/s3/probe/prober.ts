import type { StoreCapabilities } from '../../core/capabilities.js';
import {
  StoreUnavailableError,
  UnsafeStoreError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import type { Layout } from '../../core/stored.js';
import { publish, type StoreEvents } from '../../events.js';
import { unlessAborted } from '../runtime.js';
import { Certificates } from './certificate.js';
import type { Failure } from './certificate-text.js';
import type { Probed } from './checks.js';
import { probe } from './probe.js';
import { checkPath, type PathCheck, type WritePath } from './probe-paths.js';

/** Age (ms) of what is known after which the certificate is read again. */
const REREAD_MS = 60_000;

/** The known capabilities of the server: from a certificate, else from a probe for all callers. */
export class Prober {
  readonly #probed: Probed;
  readonly #certificates: Certificates;
  #capabilities: Promise<StoreCapabilities> | undefined;
  #latest: StoreCapabilities | undefined;
  /** The results of the checks of ways of writing, or the runs that will give them. */
  #paths = new Map<PathCheck, Promise<UnsupportedByStoreError | null>>();
  /**
   * Why the server must be asked, although there may be a certificate: a reply did not fit it, or
   * the caller wants it. Only the latter ends a failure.
   */
  #askBecause: 'outdated' | 'wanted' | null = null;
  #readAtMs = Number.NEGATIVE_INFINITY;

  constructor(probed: Probed, certificateMaxAgeDays: number) {
    this.#probed = probed;
    this.#certificates = new Certificates(probed, certificateMaxAgeDays);
  }

  /** @param options with `renew`, the server is asked again, whatever is known */
  async capabilities(
    options: { readonly signal?: AbortSignal | undefined; readonly renew?: boolean } = {},
  ): Promise<StoreCapabilities> {
    options.signal?.throwIfAborted();
    if (options.renew) this.#outdate('wanted');
    const known = this.#capabilities;
    const { runtime } = this.#probed;
    if (known && runtime.nowMs() - this.#readAtMs > REREAD_MS) {
      this.#readAtMs = runtime.nowMs();
      this.#capabilities = known.then(
        (capabilities) => this.#reread(capabilities),
        () => this.#start(),
      );
    }
    this.#capabilities ??= this.#start();
    return unlessAborted(this.#capabilities, options.signal);
  }

  /**
   * Returns the reason why a path cannot be used; null if the server enforces conditions there. If
   * the layout needs different ETags, it must give these, too. Asks before the first use, once for
   * all callers.
   *
   * A check that got no answers does not fail the write if there is another path: instead of an
   * upload, one PUT. The next call asks again.
   *
   * @throws {StoreUnavailableError} if nothing was learnt, and there is no other path.
   */
  async refusal(
    path: WritePath,
    layout: Layout,
    signal?: AbortSignal,
  ): Promise<UnsupportedByStoreError | null> {
    const capabilities = await this.capabilities({ signal });
    const isUpload = path === 'upload' || path === 'copy';
    if (isUpload && capabilities.conditionalComplete === false) return unsupported(path);
    const refused = await this.#verdict(path, capabilities, signal).catch((error: unknown) => {
      if (isUpload && error instanceof StoreUnavailableError) return unsupported(path, error);
      throw error;
    });
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
    if (this.#latest === capabilities) this.#outdate('outdated');
  }

  /**
   * As `forget`, for a reply that contradicts the verdict. The certificate is withdrawn, so that no
   * other process begins with it, and those that run stop within a minute.
   */
  async withdraw(capabilities: StoreCapabilities): Promise<void> {
    if (this.#latest !== capabilities) return;
    this.#outdate('outdated');
    await this.#certificates.note({ state: 'withdrawn', checkedAtMs: this.#wallClockMs() });
  }

  #outdate(because: 'outdated' | 'wanted'): void {
    this.#capabilities = undefined;
    this.#latest = undefined;
    this.#paths = new Map();
    this.#askBecause = because;
  }

  #wallClockMs(): number {
    return this.#probed.runtime.wallClockMs();
  }

  /** Runs once for all callers, so no caller's signal ends it. */
  async #start(): Promise<StoreCapabilities> {
    const because = this.#askBecause;
    this.#askBecause = null;
    try {
      this.#latest = await this.#learn(because);
      return this.#latest;
    } catch (error) {
      const verdict = error instanceof UnsafeStoreError ? 'unsafe' : 'unknown';
      this.#publish({ verdict, error });
      if (!(error instanceof UnsafeStoreError)) {
        this.#capabilities = undefined;
        this.#askBecause ??= because;
      }
      throw error;
    }
  }

  async #learn(because: 'outdated' | 'wanted' | null): Promise<StoreCapabilities> {
    const known = await this.#certificates.read(this.#wallClockMs());
    this.#readAtMs = this.#probed.runtime.nowMs();
    if (known?.state === 'unsafe' && because !== 'wanted') throw knownUnsafe(known);
    if (known?.state === 'safe' && because === null) {
      const { state: _, passed, failed, ...capabilities } = known;
      this.#paths = new Map(passed.map((path) => [path, Promise.resolve(null)]));
      for (const [path, failure] of Object.entries(failed))
        this.#paths.set(path as PathCheck, Promise.resolve(refusalOf(path as PathCheck, failure)));
      this.#publish({ verdict: 'safe', source: 'certificate', capabilities });
      return capabilities;
    }
    try {
      const learnt = await probe(this.#probed, because === 'wanted');
      if (because === 'wanted' || known?.state !== 'withdrawn')
        await this.#certificates.keep({ ...learnt, passed: [], failed: {} });
      this.#publish({ verdict: 'safe', source: 'probe', capabilities: learnt });
      return learnt;
    } catch (error) {
      if (error instanceof UnsafeStoreError)
        await this.#certificates.note({
          state: 'unsafe',
          ...failureOf(error),
          checkedAtMs: this.#wallClockMs(),
        });
      throw error;
    }
  }

  /** Learns what other processes have noted meanwhile. Without an answer, nothing has changed. */
  async #reread(capabilities: StoreCapabilities): Promise<StoreCapabilities> {
    const known = await this.#certificates.read(this.#wallClockMs()).catch(() => null);
    if (known === null || this.#latest !== capabilities) return capabilities;
    if (known.state === 'unsafe') throw knownUnsafe(known);
    if (known.state === 'safe') {
      for (const [path, failure] of Object.entries(known.failed))
        this.#paths.set(path as PathCheck, Promise.resolve(refusalOf(path as PathCheck, failure)));
      return capabilities;
    }
    this.#paths = new Map();
    return this.#start();
  }

  /** Runs once for all callers, so no caller's signal ends it. */
  async #ask(
    check: PathCheck,
    capabilities: StoreCapabilities,
  ): Promise<UnsupportedByStoreError | null> {
    let failure: Failure | null = null;
    try {
      await checkPath(check, this.#probed, capabilities);
    } catch (error) {
      if (error instanceof UnsupportedByStoreError) return unsupported(check, error);
      if (!(error instanceof UnsafeStoreError)) throw error;
      failure = failureOf(error);
    }
    if (this.#latest === capabilities)
      failure = await this.#certificates.amend(check, failure, this.#wallClockMs());
    return failure && refusalOf(check, failure);
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

function failureOf({ check, message: reason }: UnsafeStoreError): Failure {
  return { check, reason };
}

function refusalOf(path: PathCheck, { check, reason }: Failure): UnsupportedByStoreError {
  return unsupported(path, new UnsafeStoreError(check, reason));
}

/** The error for a server that failed the probe of another process. */
function knownUnsafe({
  check,
  reason,
  checkedAtMs,
}: Failure & { readonly checkedAtMs: number }): UnsafeStoreError {
  return new UnsafeStoreError(
    check,
    `${reason}; an earlier probe found this, and it counts until \`fenced probe\` or probe({ renew: true }) passes checkedAtMs=${checkedAtMs}`,
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
