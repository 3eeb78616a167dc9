import { stories } from '../../../demo/src/stories/all.ts';
import { idOf } from '../stories/stories.ts';

const NAMES = [
  ...['1-lock', '1-token', '2-lock', '3-token', '4-lock', '5-lock', '6-lock', '7-lock', '8-lock'],
  ...['9a-token', '9b-token', '10-metadata', '11-token', '12-metadata', '13-token', '14-lock'],
];

/** The recorded runs that are part of the page: at least one of each story. */
export const recorded = NAMES.map((name) => {
  const [id = '', protection = ''] = name.split('-');
  const title = stories.find((story) => idOf(story) === id)?.title;
  return { title: `${id} ${title}`, protection, file: `runs/story-${name}.json` };
});
