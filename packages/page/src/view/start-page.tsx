import { ARTICLE } from '../stories/stories.ts';
import { documentation } from './documentation.ts';
import { StoryList } from './story-list.tsx';

export function StartPage() {
  return (
    <section class="start">
      <h1>A lock cannot keep two clients apart. The storage can.</h1>
      <p>
        A client may be stopped for longer than its lock lasts. It wakes up, and overwrites the work
        of the next holder. Martin Kleppmann’s article{' '}
        <a href={ARTICLE}>How to do distributed locking</a> says so, and what helps: a number that
        grows with each holder, a <em>fencing token</em>. The storage refuses a write with an older
        one.
      </p>
      <p>
        <a href={documentation('README.md')}>Fenced</a> is this argument as code for Node:{' '}
        <code>@fenced/lock</code> issues tokens, and <code>@fenced/store</code> makes S3 and
        Postgres refuse old ones. Clients in this page run the lock client that ships as{' '}
        <code>@fenced/lock</code>. The lock nodes, the network and the time are simulated. A checker
        sees only what happened, and decides if an update was lost.
      </p>
      <ul class="cards">
        <li>
          <a class="card" href="#/story">
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
      <StoryList />
    </section>
  );
}
