import { LockArgumentError } from '../core/errors.js';
import {
  checkFields,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from '../core/options.js';
import type { NodeStatus } from '../core/status.js';
import { checkVirtualServices, resolveMap, resolveNext } from '../core/virtual-services.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { checkMoveOptions, MovableService, type MoveOptions } from './movable-service.js';
import type { MoveStatus } from './move.js';
import { NodeGroup } from './node-group.js';
import type { NodeConfig } from './node-names.js';
import { type ReadmitResult, resultOf } from './readmission.js';
import type { Guard } from './readmission-round.js';
import { type ConfiguredGroup, mark, mayBegin, optionsOf, type VirtualSetUp } from './set-up.js';
import { statusOf } from './status.js';
import { VirtualTransport } from './virtual-transport.js';

export interface RedlockGroupsConfig extends RedlockOptions {
  /**
   * The number of virtual services, 2 to 4,096. It can never be changed later: choose 64 unless you
   * know better.
   */
  readonly virtualServices: number;
  /** The nodes of each group, by the name of the group: as `nodes` of `Redlock`. */
  readonly groups: Readonly<Record<string, readonly NodeConfig[] | GroupConfig>>;
  /**
   * The virtual services of each group, by the name of the group: numbers and ranges from 0 on, as
   * `0-31,40`. Each virtual service has one group.
   */
  readonly map: Readonly<Record<string, string>>;
  /**
   * The virtual services that will move, by the name of their next group, as in `map`. This client
   * follows each of them by itself: docs/scale.md.
   */
  readonly next?: Readonly<Record<string, string>>;
}

/** A group with a key prefix of its own, so it may share nodes with other groups. */
export interface GroupConfig {
  readonly nodes: readonly NodeConfig[];
  readonly keyPrefix: string;
}

/** One virtual service, and the state of its nodes. */
export interface VirtualServiceStatus {
  readonly service: number;
  readonly group: string;
  /** The key prefix of this virtual service. `fenced` takes it as `--key-prefix`. */
  readonly keyPrefix: string;
  readonly nodes: readonly NodeStatus[];
}

/** The state of the move of one virtual service. */
export interface VirtualServiceMove extends MoveStatus {
  readonly service: number;
  readonly group: string;
  readonly nextGroup: string;
}

const CONFIG_FIELDS = [
  'virtualServices',
  'groups',
  'map',
  'next',
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
  readonly #next: ReadonlyMap<number, string>;
  readonly #services = new Map<number, VirtualService>();
  readonly #runtime: Runtime;

  /**
   * @throws {LockArgumentError} a virtual service has no group or two, a group or a number of the
   * map does not exist, two groups share a node, or an option is out of range
   */
  constructor(config: RedlockGroupsConfig, runtime: Runtime = systemRuntime) {
    checkFields('the first argument of RedlockGroups', config, CONFIG_FIELDS);
    checkRuntime(runtime);
    const options = resolveOptions(config);
    const count = checkVirtualServices(config.virtualServices);
    const groups = openGroups(config, options, runtime);
    checkFields('map', config.map, [...groups.keys()]);
    const map = resolveMap(count, config.map);
    const { next = {} } = config;
    checkFields('next', next, [...groups.keys()]);
    const transports = {
      of: (service: number) => this.#service(service).movable.transport,
      all: () => [...this.#services.values()].map(({ movable }) => movable.transport),
    };
    const transport = new VirtualTransport(count, transports, runtime);
    super('RedlockGroups', options.maxTtlMs, transport, runtime);
    this.#setUp = { count, groups };
    this.#map = map;
    this.#next = resolveNext(map, next);
    this.#runtime = runtime;
  }

  /** The state of each virtual service on its nodes, as `status` of `Redlock`. Never rejects. */
  async status(): Promise<readonly VirtualServiceStatus[]> {
    return Promise.all(this.#map.map((_, service) => this.#statusOf(service, 'served')));
  }

  /** As `status`, of each virtual service in `next`, in its present group, also after the move. */
  async presentStatus(): Promise<readonly VirtualServiceStatus[]> {
    return Promise.all([...this.#next.keys()].map((service) => this.#statusOf(service, 'present')));
  }

  /** As `status`, of each virtual service in `next`, in its next group. */
  async nextStatus(): Promise<readonly VirtualServiceStatus[]> {
    return Promise.all([...this.#next.keys()].map((service) => this.#statusOf(service, 'next')));
  }

  /** The state of each move to another group. Changes nothing. */
  async moveStatus(): Promise<readonly VirtualServiceMove[]> {
    return this.#ofEachMove(({ movable }) => movable.moveStatus());
  }

  /**
   * Moves each virtual service that has a next group, or goes on with moves that any process has
   * begun. Call it again while one is `begun`. It is final: see `move` of `Redlock`. If a virtual
   * service was never used, its present group begins to serve it first.
   */
  async move(options: MoveOptions = {}): Promise<readonly VirtualServiceMove[]> {
    const isForced = checkMoveOptions(options);
    return this.#ofEachMove(async ({ movable, next }) => {
      const seen = await movable.moveStatus();
      if (seen?.state === 'not-begun' && next) {
        const obstacle = await mark(this.#setUp, next);
        if (obstacle) return { ...seen, state: 'refused', reason: obstacle.reason };
        await movable.present.readmissions.run();
      }
      return movable.move(isForced);
    });
  }

  /**
   * Readmits the nodes of each virtual service that may vote now, as `readmit` of `Redlock`.
   *
   * @returns `ok` only if the result for every virtual service is `ok`. Otherwise `reason` begins
   * with the number of the first one for which it is not
   */
  async readmit(): Promise<ReadmitResult> {
    const results = await Promise.all(
      this.#map.map(async (_, service) => {
        const { nodes, readmissions } = this.#service(service).movable.served;
        const result = resultOf(await readmissions.run(), nodes.length, null, false);
        return result.ok
          ? result
          : { ...result, reason: `virtual service ${service}: ${result.reason}` };
      }),
    );
    return results.find(({ ok }) => !ok) ?? { ok: true };
  }

  async #statusOf(
    number: number,
    which: 'present' | 'next' | 'served',
  ): Promise<VirtualServiceStatus> {
    const { movable, present, next } = this.#service(number);
    const parts = which === 'next' ? movable.next?.present : movable[which];
    const isNext = next !== null && parts === movable.next?.present;
    const group = isNext ? next : present;
    return {
      service: number,
      group: group.name,
      keyPrefix: optionsOf(this.#setUp, group, number).keyPrefix,
      nodes: await statusOf(parts?.nodes ?? []),
    };
  }

  async #ofEachMove(
    ask: (service: VirtualService) => Promise<MoveStatus | null>,
  ): Promise<readonly VirtualServiceMove[]> {
    return Promise.all(
      [...this.#next].map(async ([number, nextGroup]) => {
        const service = this.#service(number);
        const status = await ask(service);
        if (!status) throw new Error(`virtual service ${number} has no next group`);
        return { service: number, group: service.present.name, nextGroup, ...status };
      }),
    );
  }

  /** The parts of a virtual service. They are made on first use. */
  #service(number: number): VirtualService {
    const known = this.#services.get(number);
    if (known) return known;
    const present = this.#group(this.#map[number] ?? '');
    const nextName = this.#next.get(number);
    const next = nextName === undefined ? null : this.#group(nextName);
    const movableIn = (
      group: ConfiguredGroup,
      following: MovableService | null,
    ): MovableService => {
      const options = optionsOf(this.#setUp, group, number);
      const guard: Guard = (isFirst) => mayBegin(this.#setUp, number, group, isFirst);
      return new MovableService(group.nodes.service(options, guard), following, this.#runtime);
    };
    const movable = movableIn(present, next && movableIn(next, null));
    const service = { movable, present, next };
    this.#services.set(number, service);
    return service;
  }

  #group(name: string): ConfiguredGroup {
    const group = this.#setUp.groups.get(name);
    if (!group) throw new Error(`there is no group ${name}`);
    return group;
  }
}

interface VirtualService {
  readonly movable: MovableService;
  readonly present: ConfiguredGroup;
  readonly next: ConfiguredGroup | null;
}

function openGroups(
  { groups }: RedlockGroupsConfig,
  common: ResolvedOptions,
  runtime: Runtime,
): ReadonlyMap<string, ConfiguredGroup> {
  if (typeof groups !== 'object' || groups === null || Object.keys(groups).length === 0) {
    throw new LockArgumentError(
      `groups must be an object such as { east: [nodes], west: [nodes] }, not ${Array.isArray(groups) ? 'an array' : String(groups && typeof groups)}`,
    );
  }
  const opened = new Map<string, ConfiguredGroup>();
  for (const [name, config] of Object.entries(groups)) {
    const group = openGroup(name, config, common, runtime);
    for (const other of opened.values()) checkApart(group, other);
    opened.set(name, group);
  }
  return opened;
}

function openGroup(
  name: string,
  config: readonly NodeConfig[] | GroupConfig,
  common: ResolvedOptions,
  runtime: Runtime,
): ConfiguredGroup {
  if (!hasPrefix(config)) {
    return { name, options: common, nodes: new NodeGroup(config, common, runtime) };
  }
  checkFields(`group ${name}`, config, ['nodes', 'keyPrefix']);
  const { keyPrefix } = resolveOptions({ keyPrefix: config.keyPrefix });
  const options = { ...common, keyPrefix };
  return { name, options, nodes: new NodeGroup(config.nodes, options, runtime) };
}

function hasPrefix(config: readonly NodeConfig[] | GroupConfig): config is GroupConfig {
  return typeof config === 'object' && config !== null && 'keyPrefix' in config;
}

/** @throws {LockArgumentError} a server would have the keys of two groups under one prefix */
function checkApart(group: ConfiguredGroup, other: ConfiguredGroup): void {
  if (group.options.keyPrefix !== other.options.keyPrefix) return;
  const { names, clients } = other.nodes;
  const shared = group.nodes.names.find(
    (name, at) => names.includes(name) || clients.some((one) => one === group.nodes.clients[at]),
  );
  if (shared === undefined) return;
  throw new LockArgumentError(
    `groups ${other.name} and ${group.name} share node ${shared}: give one of them a key prefix of its own, { nodes, keyPrefix }`,
  );
}
