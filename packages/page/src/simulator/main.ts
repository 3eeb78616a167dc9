import { sha1 } from '../../../../test/simulation/platform.ts';
import { replay, shrink } from '../../../../test/simulation/shrink.ts';
import { type RunOptions, simulate } from '../../../../test/simulation/world.ts';
import { storyOf } from '../stories/stories.ts';
import { playStory } from '../world/play-story.ts';
import { runSandbox } from '../world/sandbox.ts';
import type { Answer, Finding, Task, World } from './requests.ts';

const PROGRESS_EVERY = 5;

/** The scope of a worker. The types of a page have none. */
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
    case 'search':
      return { kind: 'finding', finding: await search(task) };
    case 'replay': {
      const options = { ...optionsOf(task.world), without: new Set(task.without) };
      const { outcome, trace } = await replay(task.seed, options);
      return { kind: 'finding', finding: { ...outcome, without: task.without, trace } };
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

async function search(task: Extract<Task, { kind: 'search' }>): Promise<Finding> {
  const { world, firstSeed, stride } = task;
  const options = optionsOf(world);
  for (let seeds = 1; ; seeds += 1) {
    const first = await simulate(firstSeed + (seeds - 1) * stride, options);
    if (first.violation !== null) {
      const { without, outcome, trace } = await shrink(first, options);
      return { ...outcome, without: [...without], trace };
    }
    if (seeds % PROGRESS_EVERY === 0)
      scope.postMessage({ kind: 'progress', seeds: PROGRESS_EVERY });
  }
}

function optionsOf({ flaw, moves = false }: World): RunOptions {
  return { flaws: new Set(flaw ? [flaw] : []), moves };
}
