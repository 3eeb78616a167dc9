import { expect, test } from 'vitest';
import { stories } from '../../packages/page/src/stories/stories.ts';
import { parseRoute } from '../../packages/page/src/view/route.ts';
import { playStory } from '../../packages/page/src/world/play-story.ts';
import { pinnedCells } from './harness/cells.ts';

test.each(pinnedCells())('story $id: $protection $mark: $pinned', async (cell) => {
  const { story, protection, votesAtOnce, pinned } = cell;
  const run = await playStory(story, protection, votesAtOnce);
  expect(run.verdict.verdict, run.verdict.reason).toBe(pinned);
});

test('each step of a story has one sentence or two on the page, and 5 to 8 of them wait', () => {
  expect(stories.length).toBeGreaterThanOrEqual(9);
  for (const { story, steps } of stories)
    expect(steps, story.title).toHaveLength(story.steps.length);
});

test('the same run again is the same, to the last message', async () => {
  const [first] = stories;
  if (!first) throw new Error('no story');
  const play = () => playStory(first.story, 'token', false);
  expect(await play()).toEqual(await play());
  expect(parseRoute('#/story/1')).toMatchObject({ id: first.id });
});
