import { ARTICLE, stories } from '../stories/stories.ts';

/** Each story in a sentence or two, without its end. */
export function StoryList() {
  return (
    <>
      <p>
        The stories come from <a href={ARTICLE}>the article</a>, from answers to it, and from what
        storages and networks do. Each has five to eight steps. You predict the verdict before it
        plays.
      </p>
      <ul class="stories">
        {stories.map(({ id, title, setting }) => (
          <li key={id}>
            <a href={`#/story/${id}`}>
              {id}. {title}
            </a>{' '}
            {setting}
          </li>
        ))}
      </ul>
    </>
  );
}
