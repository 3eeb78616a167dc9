import { stories as ofDemo } from '../../../demo/src/stories/all.ts';
import type { Story } from '../../../demo/src/stories/story.ts';
import type { Run } from '../world/run.ts';
import { type Telling, type Told, tellings } from './tellings.ts';

export interface PageStory extends Telling {
  /** Its name in links. */
  readonly id: string;
  readonly story: Story;
}

/** The address of Martin Kleppmann's article. */
export const ARTICLE = 'https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html';

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

/** Returns true if the clients refuse the storage under one of the protections. */
export function canRefuse({ story }: PageStory): boolean {
  return Object.values(story.pinned).includes('refused');
}

/** The time until which a step of a story shows the run. */
export function timeOf(run: Run, { moment, isOnTheWay }: Told): number {
  const { isLast, matches } = moment;
  const event = isLast ? run.events.findLast(matches) : run.events.find(matches);
  // After the reader changes a switch, the old run is shown until the new run is calculated.
  if (!event) return 0;
  const { actor, atMs } = event;
  if (!isOnTheWay) return atMs;
  const message = run.messages.find(({ from, sentMs }) => from === actor && sentMs >= atMs);
  return message?.arrivedMs ? (message.sentMs + message.arrivedMs) / 2 : atMs;
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
  // In the text of such a link, a dash is a separator.
  return `${ARTICLE}#:~:text=${encodeURIComponent(paragraph).replaceAll('-', '%2D')}`;
}
