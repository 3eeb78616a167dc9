import { type Inspection, planFirstStart, unchanged } from './core/admission.js';
import type { ResolvedOptions } from './core/options.js';
import type { InspectReply, RedisNode } from './redis/node.js';
import { inTime, type Runtime } from './runtime.js';

/** Whether another attempt may win now, and if not, why. */
export type AdmissionOutcome =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string };

const NODE_TIMEOUT_MS = 2_000;
const ROUNDS_MAX = 5;

/** Lets nodes that never had a memory, or all lost it, vote: at most one admission at a time. Never rejects. */
export class Admissions {
  readonly #nodes: readonly RedisNode[];
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  #firstStart: Promise<AdmissionOutcome> | null = null;

  /** @param nodes sorted by name */
  constructor(nodes: readonly RedisNode[], options: ResolvedOptions, runtime: Runtime) {
    this.#nodes = nodes;
    this.#options = options;
    this.#runtime = runtime;
  }

  /**
   * Lets nodes vote for the first time, if all of them answer.
   *
   * Nodes are looked at twice. Where nothing changed between the two rounds, there was a moment at which all of them were
   * as seen and fewer than a majority voted; what the second round read, and the clock, cover the tokens won before it.
   * An attempt that began before may still pair an older vote with one of a node that kept its memory. Several clients doing this at once do no harm: each ADMIT is carried out only by the very
   * incarnation that was inspected, and only once.
   */
  firstStart(): Promise<AdmissionOutcome> {
    this.#firstStart ??= this.#admitAll().finally(() => {
      this.#firstStart = null;
    });
    return this.#firstStart;
  }

  async #admitAll(): Promise<AdmissionOutcome> {
    let before = await this.#inspectAll();
    for (let round = 1; round <= ROUNDS_MAX; round += 1) {
      const after = before.silent.length > 0 ? before : await this.#inspectAll();
      if (after.silent.length > 0) return { ok: false, reason: silence(after.silent) };
      if (unchanged(before.inspections, after.inspections)) {
        return this.#carryOut(after.inspections);
      }
      before = after;
    }
    return { ok: false, reason: 'nodes keep restarting while they are being admitted' };
  }

  async #carryOut(inspections: readonly Inspection[]): Promise<AdmissionOutcome> {
    const stranger = inspections.findIndex((seen, index) => !this.#node(index).isKnownAs(seen));
    if (stranger !== -1) return { ok: false, reason: strange(this.#node(stranger)) };
    const names = this.#nodes.map((node) => node.name);
    const { firstToken } = this.#options;
    const wallClockUs = BigInt(Math.floor(this.#runtime.wallClockMs() * 1_000));
    const start = planFirstStart(names, inspections, { wallClockUs, firstToken });
    if (start.plan === 'refuse') return { ok: false, reason: start.reason };
    if (start.plan === 'not-needed') return { ok: true };
    await Promise.all(
      start.admissions.map((admission) => {
        const seen = inspections[admission.index];
        if (!seen) throw new Error(`node ${admission.index} was not inspected`);
        const node = this.#node(admission.index);
        return inTime(this.#runtime, node, node.admit(seen, admission), NODE_TIMEOUT_MS);
      }),
    );
    // Whatever they answered, the next attempt will tell who votes.
    return { ok: true };
  }

  async #inspectAll(): Promise<Inspected> {
    const replies: InspectReply[] = await Promise.all(
      this.#nodes.map((node) => {
        const request = node.inspect(this.#runtime.uniqueId());
        return inTime(this.#runtime, node, request, NODE_TIMEOUT_MS);
      }),
    );
    return {
      inspections: replies.flatMap((reply) => (reply.answer === 'inspected' ? [reply] : [])),
      silent: replies.flatMap((reply, at) =>
        reply.answer === 'error' ? [`${this.#nodes[at]?.name} (${reply.error.message})`] : [],
      ),
    };
  }

  #node(index: number): RedisNode {
    const node = this.#nodes[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }
}

interface Inspected {
  readonly inspections: readonly Inspection[];
  /** What each node that did not answer said instead. */
  readonly silent: readonly string[];
}

function silence(silent: readonly string[]): string {
  return `nodes without memory are admitted only while all nodes answer; bring back ${silent.join(', ')}`;
}

function strange(node: RedisNode): string {
  return `node ${node.name} was admitted by clients that name the nodes otherwise: configure the same names in every client`;
}
