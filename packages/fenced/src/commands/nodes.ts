import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { MoveOptions, MoveStatus, NodeStatus, Redlock, RedlockGroups } from '@fenced/lock';
import { type Command, print, printJson, UsageError, understood } from '../command.js';
import {
  nextOptions,
  ONE_TRY,
  PATIENT_CLIENT,
  REDIS_USAGE,
  redisOptions,
  withGroups,
  withRedlock,
} from '../redis.js';

const EXIT_REFUSED = 1;
const EXIT_BEGUN = 2;
const WAIT_MS = 120_000;

export const nodes: Command = {
  summary: 'moves a lock to other nodes while clients run',
  usage: `fenced nodes plan|status|apply --redis NAME=URL … --next NAME=URL …
             --next-key-prefix P [--force]
fenced nodes plan|status|apply --redis NAME=URL … --next NAME=URL …
             --virtual-services N --services LIST [--force]

plan     shows both node sets and what apply would do; changes nothing
status   shows how far the move is; changes nothing
apply    moves the locks. It is final: the present nodes never serve again.
         Run it again after an interruption, from any machine

${REDIS_USAGE}
  --next NAME=URL    one node of the next set; repeat it for each. Or set the
                     environment variable FENCED_REDIS_NEXT. A server may be a
                     node of both sets
  --next-key-prefix P  the keyPrefix of the next set, which was never used.
                     With virtual services: the next group's keyPrefix, if any
  --virtual-services N, --services LIST
                     move these virtual services of N, as 0-31,40, from one
                     group to another. Without both, the whole lock is moved
  --force            you confirm that present nodes without an answer are gone
                     for good. If this is wrong, two clients may hold one lock,
                     and the order of tokens depends on the nodes' clocks
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
      json: { type: 'boolean' },
      'wait-ms': { type: 'string' },
      'virtual-services': { type: 'string' },
      services: { type: 'string' },
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
    const { force = false, json = false, services: moving } = values;
    const act = async (lock: Movable): Promise<number> => {
      const seen =
        action === 'apply' ? await apply(lock, force, waitMs, !json) : await lock.moveStatus();
      const [present, next] = [await lock.presentStatus(), await lock.nextStatus()];
      const moves =
        action === 'plan' ? seen.map((one, at) => planned(one, present[at], next[at])) : seen;
      if (!json) show(action, moves, present, next);
      else if (moving === undefined) {
        printJson({ ...moves[0], present: present[0]?.nodes, next: next[0]?.nodes });
      } else printJson({ moves, present, next });
      return exitCode(action, stateOf(moves));
    };
    if ((moving === undefined) !== (values['virtual-services'] === undefined)) {
      throw new UsageError('--virtual-services and --services need each other');
    }
    const clients = action === 'apply' ? PATIENT_CLIENT : ONE_TRY;
    if (moving !== undefined) {
      const count = Number(values['virtual-services']);
      return withGroups(values, { count, moving }, act, clients);
    }
    if (values['next-key-prefix'] === undefined) {
      throw new UsageError('name the next set: --next NAME=URL for each, and --next-key-prefix P');
    }
    return withRedlock(values, (redlock) => act(movable(redlock)), clients);
  },
};

/** The methods of `RedlockGroups` for moves. A plain `Redlock` is one service without a number. */
interface Movable {
  moveStatus(): Promise<readonly Move[]>;
  move(options: MoveOptions): Promise<readonly Move[]>;
  presentStatus(): Promise<readonly Nodes[]>;
  nextStatus(): Promise<readonly Nodes[]>;
}

interface Numbered {
  readonly service?: number;
}

type Move = MoveStatus & Numbered;
type Nodes = Pick<Awaited<ReturnType<RedlockGroups['status']>>[number], 'nodes'> & Numbered;

function movable(redlock: Redlock): Movable {
  return {
    moveStatus: async () => [await redlock.moveStatus()],
    move: async (options) => [await redlock.move(options)],
    presentStatus: async () => [{ nodes: await redlock.presentStatus() }],
    nextStatus: async () => [{ nodes: await redlock.nextStatus() }],
  };
}

/**
 * Calls `move` until no move is half done, or the time is over. Prints each new reason of a delay.
 */
async function apply(
  lock: Movable,
  force: boolean,
  waitMs: number,
  isShown: boolean,
): Promise<readonly Move[]> {
  const untilMs = performance.now() + waitMs;
  let last = '';
  for (;;) {
    const moves = await lock.move({ force });
    const begun = moves.filter(({ state }) => state === 'begun');
    if (begun.length === 0 || performance.now() >= untilMs) return moves;
    const reasons = linesOf('move', begun, ({ reason }) => reason).join('\n');
    if (isShown && reasons !== last) print(reasons);
    last = reasons;
    const pauseMs = Math.min(...begun.map(({ retryAfterMs }) => retryAfterMs));
    await sleep(Math.min(pauseMs, Math.max(0, untilMs - performance.now())));
  }
}

/**
 * The state of a move, or `refused` if `apply` would refuse the move in the present state of the
 * nodes.
 */
function planned(move: Move, present?: Nodes, next?: Nodes): Move {
  if (move.state !== 'not-begun') return move;
  const refused = (reason: string): Move => ({ ...move, state: 'refused', reason });
  if (next?.nodes.some(({ reachable }) => !reachable)) {
    return refused('every node of the next set must answer');
  }
  // The nodes of a virtual service that was never used are new. Its move first lets them vote.
  const mayVote = (node: NodeStatus): boolean =>
    node.reachable &&
    (node.noVote === null || (node.noVote === 'new' && move.service !== undefined));
  const { nodes = [] } = present ?? {};
  return nodes.filter(mayVote).length > nodes.length / 2
    ? move
    : refused('no majority of the present set votes: see fenced status');
}

/** The state of all moves together: `begun` if only some are done. */
function stateOf(moves: readonly Move[]): MoveStatus['state'] {
  const states = new Set(moves.map(({ state }) => state));
  if (states.has('refused')) return 'refused';
  const [only = 'done', another] = states;
  return another === undefined ? only : 'begun';
}

function show(
  action: string,
  moves: readonly Move[],
  present: readonly Nodes[],
  next: readonly Nodes[],
): void {
  const nodesOf = ({ nodes }: Nodes): string => nodes.map(described).join(', ');
  const moveOf = ({ state, reason }: Move): string =>
    reason === '' ? state : `${state}: ${reason}`;
  for (const line of [
    ...linesOf('present', present, nodesOf),
    ...linesOf('next', next, nodesOf),
    ...linesOf('move', moves, moveOf),
  ]) {
    print(line);
  }
  const state = stateOf(moves);
  if (action !== 'plan' || state === 'done' || state === 'refused') return;
  const longestMs = Math.max(
    0,
    ...present.flatMap(({ nodes }) => nodes.map((one) => (one.reachable ? one.longestLeaseMs : 0))),
  );
  print('apply: the next nodes wait for the move, the present ones end their votes, leases are');
  print('  carried over, and the next nodes vote. Callers wait for some round trips.');
  print(
    `longest wait: about 2 s if apply is interrupted, ${longestMs} ms if nodes restart meanwhile`,
  );
}

/** `head: text`; or `head of 16-18,40: text`, with virtual services of the same text together. */
function linesOf<Entry extends Numbered>(
  head: string,
  entries: readonly Entry[],
  textOf: (entry: Entry) => string,
): readonly string[] {
  return [...Map.groupBy(entries, textOf)].map(([text, same]) => {
    const services = same.flatMap(({ service }) => service ?? []);
    return services.length === 0 ? `${head}: ${text}` : `${head} of ${rangesOf(services)}: ${text}`;
  });
}

/** Numbers in ascending order, as `--services` takes them. */
function rangesOf(numbers: readonly number[]): string {
  const isStart = (number: number): boolean => !numbers.includes(number - 1);
  const lasts = numbers.filter((number) => !numbers.includes(number + 1));
  return numbers
    .filter(isStart)
    .map((first, at) => (first === lasts[at] ? first : `${first}-${lasts[at]}`))
    .join(',');
}

function described(node: NodeStatus): string {
  if (!node.reachable) return `${node.name} (unreachable)`;
  return `${node.name} (${node.noVote ?? 'votes'})`;
}

function exitCode(action: string, state: MoveStatus['state']): number {
  if (state === 'refused') return EXIT_REFUSED;
  return state === 'begun' && action !== 'plan' ? EXIT_BEGUN : 0;
}
