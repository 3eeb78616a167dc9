import { stories } from '../stories/stories.ts';

export function StartPage() {
  return (
    <section class="start">
      <h1>A lock cannot keep two clients apart. The storage can.</h1>
      <p>
        Clients in this page run the lock client that ships as <code>@fenced/lock</code>. The lock
        nodes, the network and the time are simulated. A checker sees only what happened, and
        decides if an update was lost.
      </p>
      <ul class="cards">
        <li>
          <a class="card" href="#/story/1">
            <strong>Stories</strong> Predict what becomes of two updates. Then watch.
          </a>
        </li>
        <li>
          <a class="card" href="#/sandbox">
            <strong>Sandbox</strong> Stop a client, wipe a node, delay a packet. Lose an update.
          </a>
        </li>
        <li>
          <a class="card" href="#/real">
            <strong>Real runs</strong> The same picture, from real servers and a process that the
            kernel has stopped.
          </a>
        </li>
        <li>
          <a class="card" href="#/remove">
            <strong>Remove a protection</strong> Take one step away from the protocol, and search a
            world in which it fails.
          </a>
        </li>
      </ul>
      <h2>The stories</h2>
      <ol class="stories">
        {stories.map(({ id, title, story }) => (
          <li key={id} value={story.number}>
            <a href={`#/story/${id}`}>{title}</a> {story.summary}
          </li>
        ))}
      </ol>
    </section>
  );
}
