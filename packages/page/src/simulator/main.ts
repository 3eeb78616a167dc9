import { sha1 } from '../../../../test/simulation/platform.ts';
import { type Minimal, replay, shrink } from '../../../../test/simulation/shrink.ts';
import { type RunOptions, simulate } from '../../../../test/simulation/world.ts';
import { storyOf } from '../stories/stories.ts';
import { playStory } from '../world/play-story.ts';
import { runSandbox } from '../world/sandbox.ts';
import type { Answer, Finding, Task, World } from './requests.ts';

const PROGRESS_EVERY = 5;

/** The global scope of a worker, which the types of a page do not contain. */
interface WorkerScope {
  onmessage: ((event: { readonly data: Task }) => void) | null;
  postMessage(answer: Answer): void;
}

const scope = globalThis as unknown as WorkerScope;

scope.onmessage = ({ data }) => {
  carryOut(data).then(
    (answer) => scope.postMessage(answer),
    (error: unknown) => scope.postMessage({ kind: 'failed', message: String(error) }),
  );
};

async function carryOut(task: Task): Promise<Answer> {
  switch (task.kind) {
    case 'story': {
      const { story } = storyOf(task.id);
      return { kind: 'run', run: await playStory(story, task.protection, task.votesAtOnce) };
    }
    case 'sandbox':
      return { kind: 'run', run: await runSandbox(task) };
    case 'trace':
      return { kind: 'trace', ...(await trace(task)) };
    case 'search': {
      const options = optionsOf(task.world);
      return findingOf({ ...(await replay(await search(task), options)), without: [] });
    }
    case 'shrink': {
      const options = optionsOf(task.world);
      const { without, ...minimal } = await shrink(await simulate(task.seed, options), options);
      return findingOf({ ...minimal, without: [...without] });
    }
    case 'replay': {
      const options = { ...optionsOf(task.world), without: new Set(task.without) };
      return findingOf({ ...(await replay(task.seed, options)), without: task.without });
    }
  }
}

async function trace({ firstSeed, seeds }: Extract<Task, { kind: 'trace' }>) {
  let [digest, count] = ['', 0];
  for (let seed = firstSeed; seed < firstSeed + seeds; seed += 1) {
    const lines: string[] = [];
    await simulate(seed, { trace: (line) => lines.push(line) });
    digest = sha1([digest, ...lines].join('\n'));
    count += lines.length;
  }
  return { digest, lines: count };
}

/** Returns the seed of the first world that violates an invariant. */
async function search(task: Extract<Task, { kind: 'search' }>): Promise<number> {
  const { world, firstSeed, stride } = task;
  const options = optionsOf(world);
  for (let seed = firstSeed, seeds = 0; ; seed += stride) {
    const { violation } = await simulate(seed, options);
    if (violation !== null) return seed;
    seeds += 1;
    if (seeds % PROGRESS_EVERY === 0)
      scope.postMessage({ kind: 'progress', seeds: PROGRESS_EVERY });
  }
}

function findingOf({
  outcome,
  without,
  trace,
}: Omit<Minimal, 'without'> & Pick<Finding, 'without'>) {
  return { kind: 'finding' as const, finding: { ...outcome, without, trace } };
}

/** Mutants of a move show sooner in short worlds. Other mutants seldom show in them. */
function optionsOf({ flaw, moves = false, world }: World): RunOptions {
  return { ...world, flaws: new Set(flaw ? [flaw] : []), moves, short: moves };
}
