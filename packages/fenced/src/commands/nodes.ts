import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { MoveStatus, NodeStatus, NoVoteReason, Redlock } from '@fenced/lock';
import { type Command, print, printJson, UsageError, understood } from '../command.js';
import {
  nextOptions,
  ONE_TRY,
  PATIENT_CLIENT,
  REDIS_USAGE,
  redisOptions,
  withRedlock,
} from '../redis.js';

const EXIT_REFUSED = 1;
const EXIT_BEGUN = 2;
const WAIT_MS = 120_000;

export const nodes: Command = {
  summary: 'moves a lock to other nodes while clients run',
  usage: `fenced nodes plan|status|apply --redis NAME=URL … --next NAME=URL …
             --next-key-prefix P [--force] [--unannounced]

plan     shows both node sets and what apply would do; changes nothing
status   shows how far the move is; changes nothing
apply    moves the locks. It is final: the present nodes never serve again.
         Run it again after an interruption, from any machine

${REDIS_USAGE}
  --next NAME=URL    one node of the next set; repeat it for each. Or set the
                     environment variable FENCED_REDIS_NEXT. A server may be a
                     node of both sets
  --next-key-prefix P  the keyPrefix of the next set, which was never used.
  --force            you confirm that present nodes without an answer are gone
                     for good. If this is wrong, two clients may hold one lock,
                     and the order of tokens depends on the nodes' clocks
  --unannounced      you confirm that no program that uses this lock runs.
                     Without it, plan and apply refuse a next set that no
                     program has announced, which it does when it first locks
  --wait-ms N        apply gives up after this time (${WAIT_MS}); run it again
  --json             print one JSON document

Exit codes:
  0   plan: apply may run, or is done; status: not begun, or done; apply: done
  ${EXIT_REFUSED}   refused: the reason is printed
  ${EXIT_BEGUN}   status, apply: the move has begun and is not done; run apply again`,

  async run(args) {
    const options = {
      ...redisOptions,
      ...nextOptions,
      force: { type: 'boolean' },
      unannounced: { type: 'boolean' },
      json: { type: 'boolean' },
      'wait-ms': { type: 'string' },
    } as const;
    const { values, positionals } = understood(() =>
      parseArgs({ args: [...args], options, allowPositionals: true }),
    );
    const [action, ...more] = positionals;
    const isKnown = action === 'plan' || action === 'status' || action === 'apply';
    if (!isKnown || more.length > 0) throw new UsageError('name one of plan, status and apply');
    if (values.force && action !== 'apply') throw new UsageError('--force is for apply');
    const waitMs = Number(values['wait-ms'] ?? WAIT_MS);
    if (!(waitMs >= 0)) throw new UsageError(`--wait-ms must be a number: ${values['wait-ms']}`);
    if (values['next-key-prefix'] === undefined) {
      throw new UsageError('name the next set: --next NAME=URL for each, and --next-key-prefix P');
    }
    const { force = false, unannounced = false, json = false } = values;
    const act = async (redlock: Redlock): Promise<number> => {
      const seen =
        action === 'status' ? await redlock.moveStatus() : await planned(redlock, unannounced);
      const mayMove = action === 'apply' && seen.state !== 'refused';
      const move = mayMove ? await apply(redlock, force, waitMs, !json) : seen;
      const [present, next] = [await redlock.presentStatus(), await redlock.nextStatus()];
      if (json) printJson({ ...move, present, next });
      else show(action, move, present, next);
      return exitCode(action, move.state);
    };
    return withRedlock(values, act, action === 'apply' ? PATIENT_CLIENT : ONE_TRY);
  },
};

/**
 * Calls `move` until the move is not half done, or the time is over. Prints each new reason of a
 * delay.
 */
async function apply(
  redlock: Redlock,
  force: boolean,
  waitMs: number,
  isShown: boolean,
): Promise<MoveStatus> {
  const untilMs = performance.now() + waitMs;
  let last = '';
  for (;;) {
    const move = await redlock.move({ force });
    if (move.state !== 'begun' || performance.now() >= untilMs) return move;
    if (isShown && move.reason !== last) print(`move: ${move.reason}`);
    last = move.reason;
    await sleep(Math.min(move.retryAfterMs, Math.max(0, untilMs - performance.now())));
  }
}

/**
 * The state of a move, or `refused` if it must not begin in the present state of the nodes.
 *
 * A next set that no program has announced is most likely mistyped. The locks would move to where
 * no program looks. A majority of announced nodes suffices, because the others may have lost their
 * data since.
 */
async function planned(redlock: Redlock, unannounced: boolean): Promise<MoveStatus> {
  const move = await redlock.moveStatus();
  if (move.state !== 'not-begun') return move;
  const refused = (reason: string): MoveStatus => ({ ...move, state: 'refused', reason });
  const [present, next] = [await redlock.presentStatus(), await redlock.nextStatus()];
  if (next.some(({ reachable }) => !reachable)) {
    return refused('every node of the next set must answer');
  }
  const isMost = (nodes: readonly NodeStatus[], noVote: NoVoteReason | null): boolean =>
    nodes.filter((one) => one.reachable && one.noVote === noVote).length > nodes.length / 2;
  if (!isMost(present, null)) {
    return refused('no majority of the present set votes: see fenced status');
  }
  if (unannounced || isMost(next, 'awaits-move')) return move;
  return refused(
    'no program has announced this next set: compare its nodes and its key prefix with your programs, which announce it when they first lock',
  );
}

function show(
  action: string,
  { state, reason }: MoveStatus,
  present: readonly NodeStatus[],
  next: readonly NodeStatus[],
): void {
  print(`present: ${present.map(described).join(', ')}`);
  print(`next: ${next.map(described).join(', ')}`);
  print(`move: ${reason === '' ? state : `${state}: ${reason}`}`);
  if (action !== 'plan' || state === 'done' || state === 'refused') return;
  const longestMs = Math.max(
    0,
    ...present.map((node) => (node.reachable ? node.longestLeaseMs : 0)),
  );
  print('apply: the next nodes wait for the move, the present ones end their votes, leases are');
  print('  carried over, and the next nodes vote. Callers wait for some round trips.');
  print(
    `longest wait: about 2 s if apply is interrupted, ${longestMs} ms if nodes restart meanwhile`,
  );
}

function described(node: NodeStatus): string {
  if (!node.reachable) return `${node.name} (unreachable)`;
  return `${node.name} (${node.noVote ?? 'votes'})`;
}

function exitCode(action: string, state: MoveStatus['state']): number {
  if (state === 'refused') return EXIT_REFUSED;
  return state === 'begun' && action !== 'plan' ? EXIT_BEGUN : 0;
}
