import { LockArgumentError } from '../core/errors.js';
import {
  checkFields,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import type { NodeStatus } from '../core/status.js';
import { checkVirtualServices, resolveMap } from '../core/virtual-services.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { NodeGroup, type ServiceParts } from './node-group.js';
import type { NodeConfig } from './node-names.js';
import { type ReadmitResult, resultOf } from './readmission.js';
import { mayBegin, type VirtualSetUp } from './set-up.js';
import { statusOf } from './status.js';
import { VirtualTransport } from './virtual-transport.js';

export interface RedlockGroupsConfig extends RedlockOptions {
  /**
   * The number of virtual services, 2 to 4,096. It never changes: choose 64 unless you know better.
   */
  readonly virtualServices: number;
  /** The nodes of each group, by the name of the group: as `nodes` of `Redlock`. */
  readonly groups: Readonly<Record<string, readonly NodeConfig[]>>;
  /**
   * The virtual services of each group, by the name of the group: numbers and ranges from 0 on, as
   * `0-31,40`. Each virtual service has one group.
   */
  readonly map: Readonly<Record<string, string>>;
}

/** One virtual service, and the state of its nodes. */
export interface VirtualServiceStatus {
  readonly service: number;
  readonly group: string;
  /** The key prefix of this virtual service. `fenced` takes it as `--key-prefix`. */
  readonly keyPrefix: string;
  readonly nodes: readonly NodeStatus[];
}

const CONFIG_FIELDS = [
  'virtualServices',
  'groups',
  'map',
  'maxTtlMs',
  'keyPrefix',
  'fenceTtlMs',
  'firstToken',
];

/**
 * Leases with fencing tokens over several groups of Redis nodes. The hash of a resource chooses one
 * of a fixed number of virtual services. Each is a `Redlock` of its own, with a key prefix of its
 * own, on the nodes of one group. The clients belong to the caller.
 *
 * A set of resources of several virtual services is taken all or none, under one token. It takes
 * one round trip or more for each of them. Not promised: the order of waiters for such a set, and
 * that leases of resources of two virtual services have different tokens.
 */
export class RedlockGroups extends LockService {
  readonly #setUp: VirtualSetUp;
  readonly #map: readonly string[];
  readonly #services = new Map<number, ServiceParts>();
  readonly #runtime: Runtime;

  /**
   * @throws {LockArgumentError} a virtual service has no group or two, a group or a number of the
   * map does not exist, two groups share a client, or an option is out of range
   */
  constructor(config: RedlockGroupsConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of RedlockGroups', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const count = checkVirtualServices(config.virtualServices);
    const groups = openGroups(config.groups, options, runtime);
    checkFields('map', config.map, [...groups.keys()]);
    const map = resolveMap(count, config.map);
    const transport = new VirtualTransport(
      count,
      (service) => this.#parts(service).transport,
      runtime,
    );
    super('RedlockGroups', options.maxTtlMs, transport, runtime);
    const optionsOf = (service: number) => ({
      ...options,
      // With the number of all, so no two clients with other numbers share keys.
      keyPrefix: `${options.keyPrefix}${count}/${service}:`,
    });
    this.#setUp = { count, groups, options, optionsOf };
    this.#map = map;
    this.#runtime = runtime;
  }

  /** The state of each virtual service on its nodes, as `status` of `Redlock`. Never rejects. */
  async status(): Promise<readonly VirtualServiceStatus[]> {
    return Promise.all(
      this.#map.map(async (group, service) => ({
        service,
        group,
        keyPrefix: this.#setUp.optionsOf(service).keyPrefix,
        nodes: await statusOf(this.#parts(service).nodes, this.#runtime),
      })),
    );
  }

  /**
   * Readmits the nodes of each virtual service that may vote now, as `readmit` of `Redlock`.
   *
   * @returns `ok` only if that is so for every virtual service. Otherwise `reason` begins with the
   * number of the first one that it is not so for
   */
  async readmit(): Promise<ReadmitResult> {
    const results = await Promise.all(
      this.#map.map(async (_, service) => {
        const { nodes, readmissions } = this.#parts(service);
        const result = resultOf(await readmissions.run(), nodes.length, null, false);
        return result.ok
          ? result
          : { ...result, reason: `virtual service ${service}: ${result.reason}` };
      }),
    );
    return results.find(({ ok }) => !ok) ?? { ok: true };
  }

  /** The parts of a virtual service, which its first use makes. */
  #parts(service: number): ServiceParts {
    const known = this.#services.get(service);
    if (known) return known;
    const setUp = this.#setUp;
    const name = this.#map[service] ?? '';
    const group = setUp.groups.get(name);
    if (!group) throw new Error(`there is no group ${name}`);
    const parts = group.service(setUp.optionsOf(service), (isFirst) =>
      mayBegin(setUp, this.#runtime, service, name, isFirst),
    );
    this.#services.set(service, parts);
    return parts;
  }
}

function openGroups(
  groups: RedlockGroupsConfig['groups'],
  options: ResolvedOptions,
  runtime: Runtime,
): ReadonlyMap<string, NodeGroup> {
  if (typeof groups !== 'object' || groups === null || Object.keys(groups).length === 0) {
    throw new LockArgumentError(
      `groups must be an object such as { east: [nodes], west: [nodes] }, not ${Array.isArray(groups) ? 'an array' : String(groups && typeof groups)}`,
    );
  }
  const opened = new Map<string, NodeGroup>();
  const clients = new Set<unknown>();
  for (const [name, nodes] of Object.entries(groups)) {
    const group = new NodeGroup(nodes, options, runtime);
    if (group.clients.some((client) => clients.has(client))) {
      throw new LockArgumentError(
        `each node needs a client of its own: group ${name} uses one of another group`,
      );
    }
    for (const client of group.clients) clients.add(client);
    opened.set(name, group);
  }
  return opened;
}
