import { expect, test } from 'vitest';
import { stepsOf, stories, storyOf } from '../../packages/page/src/stories/stories.ts';
import { playStory } from '../../packages/page/src/world/play-story.ts';
import { pinnedCells } from './harness/cells.ts';

test.each(pinnedCells())('story $id: $protection $mark: $pinned', async (cell) => {
  const { story, protection, votesAtOnce, pinned } = cell;
  const run = await playStory(story, protection, votesAtOnce);
  expect(run.verdict.verdict, run.verdict.reason).toBe(pinned);
});

test('each of thirteen stories has five to eight steps, and each step happens in its order', async () => {
  expect(stories).toHaveLength(13);
  for (const cell of pinnedCells()) {
    const found = storyOf(cell.id);
    const steps = stepsOf(found, cell.protection);
    expect(steps.length, found.title).toBeGreaterThanOrEqual(5);
    expect(steps.length, found.title).toBeLessThanOrEqual(8);
    const { events } = await playStory(cell.story, cell.protection, cell.votesAtOnce);
    const times = steps.map(({ text, moment: { matches, isLast, isUnordered } }) => {
      expect(text).not.toBe('');
      const event = isLast ? events.findLast(matches) : events.find(matches);
      return isUnordered ? null : event?.atMs;
    });
    const ordered = times.filter((atMs) => atMs !== null);
    expect(ordered, `${found.title}, ${cell.protection}`).toEqual(
      ordered.map(Number).toSorted((a, b) => a - b),
    );
  }
});

test('the same run again is the same, to the last message', async () => {
  const [first] = stories;
  if (!first) throw new Error('no story');
  const play = () => playStory(first.story, 'token', false);
  expect(await play()).toEqual(await play());
});
