import { expect, test } from 'vitest';
import { stories } from '../../packages/page/src/stories/stories.ts';
import { playStory } from '../../packages/page/src/world/play-story.ts';
import { pinnedCells } from './harness/cells.ts';

test.each(pinnedCells())('story $id: $protection $mark: $pinned', async (cell) => {
  const { story, protection, votesAtOnce, pinned } = cell;
  const run = await playStory(story, protection, votesAtOnce);
  expect(run.verdict.verdict, run.verdict.reason).toBe(pinned);
});

test('the page has words for each step of a story', () => {
  expect(stories).toHaveLength(12);
  for (const { story, steps, stepsIfRefused } of stories) {
    expect(steps, story.title).toHaveLength(story.steps.length);
    expect(stepsIfRefused?.length, story.title).toBe(story.stepsIfRefused?.length);
  }
});

test('the same run again is the same, to the last message', async () => {
  const [first] = stories;
  if (!first) throw new Error('no story');
  const play = () => playStory(first.story, 'token', false);
  expect(await play()).toEqual(await play());
});
