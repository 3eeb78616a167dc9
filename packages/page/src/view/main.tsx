import { render } from 'preact';
import { isLive } from '../real/live.ts';
import { follow, route } from './navigation.ts';
import { RealPage } from './real-page.tsx';
import { RemovePage } from './remove-page.tsx';
import { LinkError, type Route } from './route.ts';
import { SandboxPage } from './sandbox-page.tsx';
import { StartPage } from './start-page.tsx';
import { StoryList } from './story-list.tsx';
import { StoryPage } from './story-page.tsx';

function App() {
  return (
    <>
      <header>
        <a class="name" href="#/">
          Fenced
        </a>
        <nav aria-label="Parts of the page">
          <a href="#/story">Stories</a>
          <a href="#/sandbox">Sandbox</a>
          <a href="#/remove">Remove a protection</a>
          <a href="#/real">Real runs</a>
        </nav>
      </header>
      <main>{pageOf(route.value)}</main>
    </>
  );
}

function pageOf(where: Route | LinkError) {
  if (where instanceof LinkError) {
    return (
      <section role="alert">
        <h1>This link cannot be opened</h1>
        <p>{where.message}.</p>
        <p>
          <a href="#/">Go to the start page</a>
        </p>
      </section>
    );
  }
  if (where.page === 'stories')
    return (
      <section class="start">
        <h1>Stories</h1>
        <StoryList />
      </section>
    );
  if (where.page === 'story') return <StoryPage key={where.id} route={where} />;
  if (where.page === 'sandbox') return <SandboxPage route={where} />;
  if (where.page === 'real') return <RealPage route={where} />;
  if (where.page === 'remove') return <RemovePage route={where} />;
  return <StartPage />;
}

addEventListener('hashchange', follow);
follow();
const root = document.getElementById('page');
if (root) render(<App />, root);
// A live page needs its server anyway. If the browser allows no service worker, the page needs the
// network.
if ('serviceWorker' in navigator && !isLive())
  addEventListener('load', () => navigator.serviceWorker.register('offline.js').catch(() => null));
