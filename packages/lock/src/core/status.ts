import type { MismatchReply } from './answers.js';
import { withJson } from './json.js';
import { describeMismatch, STORAGE_VERSION } from './mismatch.js';
import { supersededIn } from './quorum.js';
import type { Inspection } from './readmission.js';

/** The memory of a node's server. */
interface NodeMemory {
  /**
   * Resources that the node remembers; a recently locked one may count twice. Null if the node's
   * user may not run `HLEN`.
   */
  readonly resources: number | null;
  readonly usedMemoryBytes: number;
  /** `maxmemory`; null without a limit. */
  readonly maxMemoryBytes: number | null;
}

/** A node's report of itself, and the clock difference seen by this client. */
export interface NodeReport extends Inspection, NodeMemory {
  /** Key prefix and names of the next set as JSON, if the node is sealed; else null. */
  readonly nextSet: string | null;
  /** The previous node set, if a move from that set has prepared this node; else null. */
  readonly previousSet: string | null;
  /** Milliseconds of the recovery wait so far, by the node's own clock; 0 if there was none. */
  readonly waitedMs: number;
  /** The configuration with which clients set the node up; null if it was never set up. */
  readonly setUp: {
    /** 0 for nodes from before versions were kept. */
    readonly storageVersion: number;
    /** Its own name and those of all nodes; empty if the storage version is another one. */
    readonly knownAs: string;
    readonly members: readonly string[];
    /** True if this client has the same storage version and names. */
    readonly isOwn: boolean;
  } | null;
  /** Server and version, as `Redis 7.0.15`. */
  readonly version: string;
  /** `master` as it should be, else the role that the server states. */
  readonly role: string;
  /** The eviction policy of the server; `noeviction` also if memory has no limit. */
  readonly evictionPolicy: string;
  /** True if it keeps an append-only file. */
  readonly appendOnly: boolean;
  /**
   * Milliseconds by which the node's clock is ahead of this process's wall clock, as exact as the
   * network allows.
   */
  readonly clockDifferenceMs: number;
}

/**
 * The reason why a node has no vote that counts.
 *
 * - `new`: it remembers nothing.
 * - `restarted`: its process, its data or its replication history has changed since it was
 *   readmitted.
 * - `superseded`: other nodes know a later incarnation or generation of it. It is an old master
 *   that still answers, or it is just being readmitted.
 * - `not-master`: its server is a replica, even a writable one, or has another role.
 * - `sealed`: its node set moved to another one, or is about to. It never votes again.
 * - `awaits-move`: its node set begins to vote at the end of a move.
 * - `config-mismatch`: it was set up with other node names than this client has.
 * - `wrong-version`: it was set up with another storage version than this client has.
 */
export type NoVoteReason =
  | 'new'
  | 'restarted'
  | 'superseded'
  | 'sealed'
  | 'awaits-move'
  | MismatchReply['answer'];

/** The state of one node for an operator. `JSON.stringify` writes the token as a decimal string. */
export type NodeStatus =
  | { readonly name: string; readonly reachable: false; readonly error: Error }
  | ({
      readonly name: string;
      readonly reachable: true;
      readonly version: string;
      readonly role: string;
      /** Null if its votes count. */
      readonly noVote: NoVoteReason | null;
      /**
       * Least milliseconds of recovery wait that are left. The node waits because it may have
       * forgotten a lease.
       */
      readonly waitMs: number;
      readonly generation: number;
      /** The highest token that it remembers, over all resources; 0 if it remembers none. */
      readonly maxToken: bigint;
      /** The longest lease in milliseconds that it remembers having granted. */
      readonly longestLeaseMs: number;
      /** The longest lease that it grants; null if it was never admitted. */
      readonly maxTtlMs: number | null;
      /** True if it was set up with this client's storage version and names, or never. */
      readonly membersAgree: boolean;
      /** All node names that it was set up with; null if never, or with another storage version. */
      readonly members: readonly string[] | null;
      /**
       * Its storage version, 0 for nodes from before versions were kept; null if it never was set
       * up.
       */
      readonly storageVersion: number | null;
      readonly appendOnly: boolean;
      readonly evictionPolicy: string;
      readonly clockDifferenceMs: number;
      /** Sentences about the risks of the node's configuration. */
      readonly warnings: readonly string[];
    } & NodeMemory);

/** This client's configuration of a node, and a setting of its server. */
export interface NodeSetting {
  readonly name: string;
  readonly durable: boolean;
  /**
   * The fsync policy of the append-only file; null if it could not be read, or was not asked for.
   */
  readonly appendFsync: string | null;
}

/** @param reports by node index, as `settings`; an error for a node that did not answer */
export function describeNodes(
  settings: readonly NodeSetting[],
  reports: readonly (NodeReport | Error)[],
): readonly NodeStatus[] {
  const seen = reports.map((report) => (report instanceof Error ? null : report));
  const voters = seen.flatMap((report, index) =>
    report?.voting && !mismatchOf(report) ? [{ index, ...report }] : [],
  );
  const superseded = supersededIn(voters).map(({ index }) => index);
  const longestMs = Math.max(...seen.map((report) => report?.longestMs ?? 0));
  return reports.map((report, index) => {
    const setting = settings[index];
    if (!setting) throw new Error(`there is no node ${index}`);
    const { name } = setting;
    if (report instanceof Error) return withJson({ name, reachable: false, error: report });
    const { version, role, generation, max, appendOnly, evictionPolicy } = report;
    const mismatch = mismatchOf(report);
    const mayVoteAtOnce = report.voting || (setting.durable && generation > 0);
    const ownReason = superseded.includes(index) ? 'superseded' : noVoteReason(report);
    const mismatches = settings.map((one, at) =>
      at === index && mismatch
        ? { name, ...mismatch }
        : { name: one.name, answer: 'pending' as const },
    );
    return withJson({
      name,
      reachable: true,
      version,
      role,
      noVote: mismatch?.answer ?? ownReason,
      waitMs:
        mismatch || mayVoteAtOnce || report.nextSet !== null
          ? 0
          : Math.max(0, longestMs - report.waitedMs),
      generation,
      maxToken: max,
      longestLeaseMs: report.longestMs,
      maxTtlMs: report.maxTtlMs,
      membersAgree: report.setUp?.isOwn ?? true,
      members: report.setUp?.members.length ? report.setUp.members : null,
      storageVersion: report.setUp?.storageVersion ?? null,
      appendOnly,
      evictionPolicy,
      resources: report.resources,
      usedMemoryBytes: report.usedMemoryBytes,
      maxMemoryBytes: report.maxMemoryBytes,
      clockDifferenceMs: report.clockDifferenceMs,
      warnings: warningsOf(setting, report, describeMismatch(mismatches)),
    });
  });
}

function mismatchOf({ role, setUp }: NodeReport): MismatchReply | null {
  if (role !== 'master') return { answer: 'not-master', role };
  if (!setUp || setUp.isOwn) return null;
  const { storageVersion, knownAs, members } = setUp;
  return storageVersion === STORAGE_VERSION
    ? { answer: 'config-mismatch', knownAs, members }
    : { answer: 'wrong-version', storageVersion };
}

function noVoteReason({ voting, generation, max, nextSet, awaits }: NodeReport) {
  if (nextSet !== null) return 'sealed';
  if (voting) return null;
  if (awaits !== null) return 'awaits-move';
  return generation === 0 && max === 0n ? 'new' : 'restarted';
}

const CLOCK_DIFFERENCE_MAX_MS = 1_000;
/** The part of `maxmemory` above which an operator is warned. */
const MEMORY_WARNING = 0.75;

function warningsOf(setting: NodeSetting, report: NodeReport, mismatch: string): string[] {
  const { role, evictionPolicy, appendOnly, clockDifferenceMs } = report;
  const { usedMemoryBytes, maxMemoryBytes } = report;
  const checks: [boolean, string][] = [
    [role !== 'master', `it is a ${role}: a node must be a master of its own`],
    [mismatch !== '', mismatch],
    [
      evictionPolicy !== 'noeviction',
      `it may evict locks when memory is full: set maxmemory-policy noeviction, not ${evictionPolicy}`,
    ],
    [
      maxMemoryBytes !== null && usedMemoryBytes > MEMORY_WARNING * maxMemoryBytes,
      `it uses ${usedMemoryBytes} of ${maxMemoryBytes} bytes of maxmemory, and refuses new names when that is full: give it more, or lower fenceTtlMs`,
    ],
    [setting.durable && !appendOnly, 'it is declared durable, but keeps no append-only file'],
    [
      setting.durable && appendOnly && setting.appendFsync !== 'always',
      `it is declared durable, which needs appendfsync always: ${setting.appendFsync === null ? 'it could not be read' : `it is ${setting.appendFsync}`}`,
    ],
    [
      Math.abs(clockDifferenceMs) > CLOCK_DIFFERENCE_MAX_MS,
      `its clock differs by ${Math.round(clockDifferenceMs)} ms from this client's; tokens do not depend on it, but the order of waiters may`,
    ],
  ];
  return checks.flatMap(([isSo, warning]) => (isSo ? [warning] : []));
}
