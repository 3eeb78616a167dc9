import { expect, test } from 'vitest';
import { layoutOf } from '../../packages/page/src/view/layout.ts';
import type { Word } from '../../packages/page/src/view/words.ts';
import { playStory } from '../../packages/page/src/world/play-story.ts';
import { pinnedCells } from './harness/cells.ts';

/** The usual width of a letter of the picture. */
const LETTER_PX = 6;
const HEIGHT_PX = 12;

function edges({ x, text, style }: Word): readonly [number, number] {
  const px = text.length * LETTER_PX;
  if (style.endsWith('right')) return [x - px, x];
  return style.startsWith('event') ? [x, x + px] : [x - px / 2, x + px / 2];
}

// The picture of a phone has 356 px.
test.each([356, 720])('no text covers another in a picture of %i px', async (width) => {
  let labels = 0;
  for (const { story, protection, votesAtOnce } of pinnedCells()) {
    const layout = layoutOf(await playStory(story, protection, votesAtOnce), width);
    labels += layout.labels.length;
    const words = [...layout.texts, ...layout.labels]
      .filter(({ style }) => style !== 'lost')
      .sort((a, b) => a.y - b.y);
    for (const [at, word] of words.entries()) {
      const [from, to] = edges(word);
      expect(from, word.text).toBeGreaterThanOrEqual(0);
      expect(to, word.text).toBeLessThanOrEqual(width);
      for (const other of words.slice(at + 1)) {
        const [otherFrom, otherTo] = edges(other);
        const covers = other.y - word.y < HEIGHT_PX && from < otherTo && otherFrom < to;
        expect(covers, `${story.title}: ${word.text}, ${other.text}`).toBe(false);
      }
    }
  }
  expect(labels).toBeGreaterThan(200);
});
