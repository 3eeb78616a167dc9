import type { Event } from '../../../demo/src/history.ts';
import type { Protection } from '../../../demo/src/job.ts';
import { missingStep, type Story } from '../../../demo/src/stories/story.ts';
import { SimulatedControls } from './controls.ts';
import type { Run } from './run.ts';
import { World } from './world.ts';

/** The article's example has five nodes. If no node breaks, three are easier to see. */
const NODES = { breaking: 5, sound: 3 };
const SEED = 1;

/**
 * Plays a story of the demo in the simulated world.
 *
 * @param votesAtOnce nodes that forgot their leases vote at once
 */
export async function playStory(
  story: Story,
  protection: Protection,
  votesAtOnce: boolean,
): Promise<Run> {
  const world = new World({
    seed: SEED,
    protection,
    votesAtOnce,
    nodeCount: story.breaks ? NODES.breaking : NODES.sound,
    ignoresConditions: story.ignoresConditions ?? false,
  });
  await world.useBefore();
  await world.run(story.play(new SimulatedControls(world, story.leaseLasts ?? false)));
  return world.end((events: readonly Event[]) => missingStep(story, events));
}
