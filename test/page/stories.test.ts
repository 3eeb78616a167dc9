import { expect, test } from 'vitest';
import { stories, storyOf, timeOf } from '../../packages/page/src/stories/stories.ts';
import { rowsOf } from '../../packages/page/src/view/rows.ts';
import { playStory } from '../../packages/page/src/world/play-story.ts';
import { pinnedCells } from './harness/cells.ts';

test.each(pinnedCells())('story $id: $protection $mark: $pinned', async (cell) => {
  const { story, protection, votesAtOnce, pinned } = cell;
  const run = await playStory(story, protection, votesAtOnce);
  expect(run.verdict.verdict, run.verdict.reason).toBe(pinned);
});

test('each of thirteen stories has five to eight steps, and each shows more than the one before', async () => {
  expect(stories).toHaveLength(13);
  for (const { id, story, protection, votesAtOnce } of pinnedCells()) {
    const steps = storyOf(id).steps({ protection, votesAtOnce });
    expect(steps.length, story.title).toBeGreaterThanOrEqual(5);
    expect(steps.length, story.title).toBeLessThanOrEqual(8);
    const run = await playStory(story, protection, votesAtOnce);
    let beforeMs = Number.NEGATIVE_INFINITY;
    for (const told of steps) {
      const atMs = timeOf(run, told);
      const isNew = rowsOf(run).some((row) => row.atMs > beforeMs && row.atMs <= atMs);
      // A step about a message on its way need not show a new row. Some message must be on its way.
      const isOnTheWay = run.messages.some(
        ({ sentMs, arrivedMs }) => sentMs < atMs && atMs < (arrivedMs ?? Number.POSITIVE_INFINITY),
      );
      const shows = told.isOnTheWay ? isOnTheWay : isNew;
      expect(shows, `story ${id}, ${protection}: ${told.text}`).toBe(true);
      beforeMs = atMs;
    }
  }
});

test('the same run again is the same, to the last message', async () => {
  const [first] = stories;
  if (!first) throw new Error('no story');
  const play = () => playStory(first.story, 'token', false);
  expect(await play()).toEqual(await play());
});
