import { expect, test } from 'vitest';
import { type Outcome, simulate, type WorldKind } from './world.ts';

// A kind of event that vanished from the worlds would leave every other test green. The number of
// hand-overs is counted in simulation.test.ts, because only long worlds have many.
const FIRST_SEED = 20_251_121;
const TIMEOUT_MS = 120_000;

interface World {
  readonly outcome: Outcome;
  /** Its settings. */
  readonly first: string;
  readonly lines: readonly string[];
}

async function worlds(count: number, kind: WorldKind): Promise<readonly World[]> {
  const all: World[] = [];
  for (let seed = FIRST_SEED; seed < FIRST_SEED + count; seed += 1) {
    const lines: string[] = [];
    const outcome = await simulate(seed, { ...kind, short: true, trace: (one) => lines.push(one) });
    all.push({ outcome, first: lines[0] ?? '', lines });
  }
  return all;
}

test('late copies of each command of a lease arrive though no connection breaks', {
  timeout: TIMEOUT_MS,
}, async () => {
  // Without faults, no connection breaks, so each late command is a second copy.
  // With these settings, many acquisitions need CONFIRM or BACKFILL.
  const calm = await worlds(100, {
    faults: [],
    settings: { nodeCount: 5, clientCount: 4, resourceCount: 1, delayChance: 0.3 },
  });
  const late = calm.flatMap(({ lines }) => lateRequests(lines));
  for (const command of ['acquire', 'confirm', 'backfill', 'extend', 'release']) {
    // A request with other calls, too, may be late because of those.
    expect(late, command).toContain(command);
  }
});

/** The commands of each late request. Each line is one call. The calls of a request adjoin. */
function lateRequests(lines: readonly string[]): readonly string[] {
  const requests: { readonly head: string; readonly commands: Set<string> }[] = [];
  for (const line of lines) {
    const [, head = '', command = ''] = /^(.*): late (\w+)/.exec(line) ?? [];
    const last = requests.at(-1);
    if (last?.head === head) last.commands.add(command);
    else requests.push({ head, commands: new Set([command]) });
  }
  return requests.map(({ commands }) => [...commands].join(' '));
}

test('clocks of nodes leap back where two valid leases at once are a violation', {
  timeout: TIMEOUT_MS,
}, async () => {
  const judged = (await worlds(60, {})).filter(({ first }) =>
    /areNodesSound=true|areLossesWaitedFor=true/.test(first),
  );
  expect(judged.length).toBeGreaterThan(10);
  const leaps = judged.flatMap(({ lines }) => lines.filter((line) => line.includes(': leap-back')));
  expect(leaps.length).toBeGreaterThan(judged.length);
});

test('nodes that lose their memory during a move are readmitted, and the move ends', {
  timeout: TIMEOUT_MS,
}, async () => {
  const moved = (
    await worlds(60, {
      moves: true,
      faults: ['flush'],
      settings: { losses: 'few', faultCount: 8 },
    })
  ).filter(({ outcome }) => outcome.moves > 0);
  expect(moved.length).toBeGreaterThan(6);
  expect(moved.filter(isReadmitted).length).toBeGreaterThan(1);
});

/** True if a node loses its memory after the first seal of the move, and then is admitted. */
function isReadmitted({ lines }: World): boolean {
  const lost = new Set<string | undefined>();
  return lines.slice(lines.findIndex((line) => line.includes(' = sealed '))).some((line) => {
    lost.add(/: flush node=(\w)/.exec(line)?.[1]);
    const admitted = /→ (\w): admit .* = admitted/.exec(line)?.[1];
    return admitted !== undefined && lost.has(admitted);
  });
}
