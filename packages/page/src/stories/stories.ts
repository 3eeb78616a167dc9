import type { Protection } from '../../../demo/src/job.ts';
import { stories as ofDemo } from '../../../demo/src/stories/all.ts';
import type { Step, Story } from '../../../demo/src/stories/story.ts';
import { type Telling, tellings } from './tellings.ts';

export interface PageStory extends Telling {
  /** Its name in links. */
  readonly id: string;
  readonly story: Story;
}

const ARTICLE = 'https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html';

/** The stories that the simulated world can play, in the order of the demo. */
export const stories: readonly PageStory[] = ofDemo.flatMap((story) => {
  const telling = tellings.find(({ title }) => title === story.title);
  return telling ? [{ ...telling, id: idOf(story), story }] : [];
});

/** The number of the story, and a letter if another one has the same number. */
export function idOf(story: Story): string {
  const same = ofDemo.filter(({ number }) => number === story.number);
  return `${story.number}${same.length > 1 ? 'abc'[same.indexOf(story)] : ''}`;
}

/** The sentences of a story, and the events at which they are true. */
export function stepsOf(
  found: PageStory,
  protection: Protection,
): readonly { readonly text: string; readonly moment: Step }[] {
  const { story } = found;
  const isRefused = story.pinned[protection] === 'refused' && found.stepsIfRefused !== undefined;
  const texts = isRefused ? (found.stepsIfRefused ?? []) : found.steps;
  const moments = isRefused
    ? (found.momentsIfRefused ?? story.stepsIfRefused ?? [])
    : (found.moments ?? story.steps);
  return moments.map((moment, at) => ({ text: texts[at] ?? '', moment }));
}

/** @throws Error if there is no such story */
export function storyOf(id: string): PageStory {
  const found = stories.find((story) => story.id === id);
  if (!found) throw new Error(`there is no story ${id}; choose one of ${ids()}`);
  return found;
}

export function ids(): string {
  return stories.map(({ id }) => id).join(', ');
}

/** The address of a paragraph of the article. */
export function addressOf({ paragraph }: PageStory): string {
  // A dash would end the text.
  return `${ARTICLE}#:~:text=${encodeURIComponent(paragraph).replaceAll('-', '%2D')}`;
}
