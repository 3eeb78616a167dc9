import { crc32 } from 'node:zlib';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import type { Runtime } from '../runtime/runtime.js';
import { type ServiceTransport, SetAcquisition, type SetPart } from './set-acquisition.js';
import { ownersOf, worst } from './set-handle.js';

/** The number of the virtual service of a resource: the CRC-32 of its UTF-8, modulo `count`. */
function serviceOf(resource: string, count: number): number {
  return crc32(resource) % count;
}

/** The transports of the virtual services that are in use. */
export interface ServiceTransports {
  /** Returns the transport of this virtual service. The first call opens it. */
  of(service: number): ServiceTransport;
  all(): readonly ServiceTransport[];
}

/** Passes each request to the virtual services of its resources. */
export class VirtualTransport implements LockTransport {
  readonly #count: number;
  readonly #transports: ServiceTransports;
  readonly #runtime: Runtime;

  constructor(count: number, transports: ServiceTransports, runtime: Runtime) {
    this.#count = count;
    this.#transports = transports;
    this.#runtime = runtime;
  }

  async acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    const parts = this.#partsOf(request.resources);
    const [only, another] = parts;
    if (only && !another) return only.transport.acquire(request);
    const set = new SetAcquisition(parts, request, this.#runtime);
    const result = await set.acquire();
    if (!result.ok) await set.release();
    return result;
  }

  wait(request: AcquireRequest): Waiter {
    const parts = this.#partsOf(request.resources);
    const [only, another] = parts;
    if (only && !another) return only.transport.wait(request);
    return new SetAcquisition(parts, request, this.#runtime);
  }

  waitBehindOthers(request: AcquireRequest): Waiter | null {
    const [only, another] = this.#partsOf(request.resources);
    return only && !another ? only.transport.waitBehindOthers(request) : null;
  }

  async extend(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    token: bigint,
  ): Promise<number> {
    const deadlines = await this.#ofEachPart(resources, owner, (part, id) =>
      part.transport.extend(part.resources, id, ttlMs, token),
    );
    return Math.min(...deadlines);
  }

  async release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const outcomes = await this.#ofEachPart(resources, owner, (part, id) =>
      part.transport.release(part.resources, id),
    );
    return worst(outcomes);
  }

  async close(): Promise<void> {
    await Promise.all(this.#transports.all().map((transport) => transport.close()));
  }

  #ofEachPart<Result>(
    resources: readonly string[],
    owner: string,
    ask: (part: SetPart, owner: string) => Promise<Result>,
  ): Promise<readonly Result[]> {
    const parts = this.#partsOf(resources);
    const owners = ownersOf(owner, parts.length);
    return Promise.all(parts.map((part, at) => ask(part, owners[at] ?? owner)));
  }

  /** The resources of each virtual service, in the order of the services. */
  #partsOf(resources: readonly string[]): readonly SetPart[] {
    const byService = new Map<number, string[]>();
    for (const resource of resources) {
      const service = serviceOf(resource, this.#count);
      const others = byService.get(service);
      if (others) others.push(resource);
      else byService.set(service, [resource]);
    }
    return [...byService]
      .sort(([one], [other]) => one - other)
      .map(([service, own]) => ({ transport: this.#transports.of(service), resources: own }));
  }
}
