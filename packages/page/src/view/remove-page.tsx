import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { type Mutant, mutantNamed, mutants } from '../../../../test/simulation/mutant-list.ts';
import type { Finding, World } from '../simulator/requests.ts';
import { documentation } from './documentation.ts';
import { useArrival } from './motion.ts';
import { mutantGroups } from './mutant-groups.ts';
import { linkTo, type Route } from './route.ts';
import { shortLine } from './short-line.ts';
import { simulate } from './simulator.ts';

type RemoveRoute = Extract<Route, { page: 'remove' }>;

/** The first seed of `npm run mutants`. */
const FIRST_SEED = 20_251_121;
const WORKERS_MAX = 4;

/**
 * Removes a protection from the client or the nodes, and searches for a world that shows the
 * effect.
 */
export function RemovePage({ route }: { readonly route: RemoveRoute }) {
  const mutant = mutants.find(({ name }) => name === route.mutant) ?? null;
  return (
    <article class="one-column">
      <h1>Remove a protection</h1>
      <p>
        The project's simulation runs clients, nodes and a network in worlds with many faults. A
        checker knows the rules: tokens grow, no lease is believed in after its end, and everybody
        acquires again. Each link below leaves out one part of a step of the protocol. The page
        searches a world in which a rule is broken, and then leaves out faults while it stays
        broken. A part marked “rare” matters only after several faults in a row, so the search may
        find nothing. The <a href={documentation('glossary.md')}>glossary</a> explains words.
      </p>
      <Choices now={mutant} />
      {mutant && <Search key={`${mutant.name} ${route.seed}`} {...{ mutant, route }} />}
    </article>
  );
}

function Choices({ now }: { readonly now: Mutant | null }) {
  return (
    <ol class="groups">
      {mutantGroups.map(({ step, messages, purpose, href, mutants }) => (
        <li key={step}>
          <h2>{step}</h2>
          <p class="messages">{messages}</p>
          <p>
            {purpose} <a href={href}>More about this step</a>
          </p>
          <ul>
            {mutants.map((name) => (
              <li key={name}>
                <a
                  href={linkTo({ page: 'remove', mutant: name, seed: null, without: [] })}
                  aria-current={name === now?.name ? 'page' : undefined}
                >
                  {name}
                </a>
                {mutantNamed(name).excuse && <span class="note"> rare</span>}
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}

interface State {
  readonly seeds: number;
  readonly finding: Finding | null;
  /** True while the page leaves out faults. */
  readonly isWhole: boolean;
  readonly failure: string | null;
}

function Search({ mutant, route }: { readonly mutant: Mutant; readonly route: RemoveRoute }) {
  const state = useSignal<State>({ seeds: 0, finding: null, isWhole: false, failure: null });
  const ending = useSignal(new AbortController());
  const heading = useArrival();
  useEffect(() => {
    const end = ending.value;
    const change = (part: Partial<State>): void => {
      if (!end.signal.aborted) state.value = { ...state.value, ...part };
    };
    const show = (finding: Finding, isWhole: boolean): void => {
      change({ finding, isWhole });
      const { seed, without } = finding;
      const link = linkTo({ page: 'remove', mutant: mutant.name, seed, without });
      if (!end.signal.aborted) history.replaceState(null, '', link);
    };
    const play = async (): Promise<void> => {
      const { signal } = end;
      const { seed, without } = route;
      const [world, options] = [worldOf(mutant), { mutant, signal }];
      if (seed !== null) {
        const task = { kind: 'replay', world, seed, without } as const;
        return show(found(await simulate(task, options)), false);
      }
      const first = await search(mutant, signal, (seeds) =>
        change({ seeds: state.value.seeds + seeds }),
      );
      show(first, true);
      const task = { kind: 'shrink', world, seed: first.seed } as const;
      show(found(await simulate(task, options)), false);
    };
    play().catch((error: Error) => change({ failure: error.message }));
    return () => end.abort();
  }, [mutant, route, ending, state]);
  const { seeds, finding, isWhole, failure } = state.value;
  return (
    <section class="result" aria-live="polite">
      <h2 ref={heading} tabIndex={-1}>
        Mutant: {mutant.name}
      </h2>
      <p>{mutant.purpose}</p>
      {mutant.excuse && <p class="note">It is rarely found: {mutant.excuse}.</p>}
      {failure && <p role="alert">The search ended: {failure}</p>}
      {!finding && !failure && (
        <p class="row">
          <span role="status">Searching: {seeds} worlds, all keep the rules so far …</span>
          <button
            type="button"
            onClick={() => {
              ending.value.abort(new Error('stopped by the reader'));
              state.value = { ...state.value, failure: 'stopped by the reader' };
            }}
          >
            Stop
          </button>
        </p>
      )}
      {finding && <Found {...{ finding, isWhole }} />}
    </section>
  );
}

function worldOf({ flaw, moves, world }: Mutant): World {
  return { ...(flaw && { flaw }), ...(moves && { moves }), ...(world && { world }) };
}

/** Searches with several workers. */
async function search(
  mutant: Mutant,
  signal: AbortSignal,
  onProgress: (seeds: number) => void,
): Promise<Finding> {
  const options = { mutant, signal, onProgress };
  const world = worldOf(mutant);
  const stride = Math.min(navigator.hardwareConcurrency || 1, WORKERS_MAX);
  const over = new AbortController();
  const both = AbortSignal.any([signal, over.signal]);
  const searches = Array.from({ length: stride }, async (_, at) => {
    const task = { kind: 'search', world, firstSeed: FIRST_SEED + at, stride } as const;
    return found(await simulate(task, { ...options, signal: both }));
  });
  try {
    return await Promise.race(searches);
  } finally {
    over.abort();
    await Promise.allSettled(searches);
  }
}

function found(answer: Awaited<ReturnType<typeof simulate>>): Finding {
  if (answer.kind !== 'finding') throw new Error(`an unexpected answer: ${answer.kind}`);
  return answer.finding;
}

function Found({ finding, isWhole }: Pick<State, 'isWhole'> & { readonly finding: Finding }) {
  const { seed, violation, without, faultCount, trace } = finding;
  const left = faultCount - without.length;
  const box = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const line = box.current?.querySelector<HTMLElement>('.violation');
    if (box.current && line) box.current.scrollTop = line.offsetTop - box.current.clientHeight / 2;
  }, [trace]);
  return (
    <>
      <p class={`verdict ${violation === null ? 'good' : 'bad'}`} role="status">
        <strong>{violation === null ? 'KEPT' : 'BROKEN'}</strong>{' '}
        {violation ?? 'The world of this link keeps the rules.'}
      </p>
      <p>
        World {seed}, with {left} of its {faultCount} faults.{' '}
        {isWhole ? 'The page leaves out faults …' : 'The address of this page contains the run.'}
      </p>
      <h3>The last messages and faults</h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: A scrollable region needs the keyboard. */}
      <section class="trace" ref={box} tabIndex={0} aria-label="Messages and faults">
        <ol>
          {trace.map((line, at) => (
            <li key={at} class={/fault|VIOLATION/.exec(line)?.[0].toLowerCase() ?? ''}>
              {shortLine(line)}
            </li>
          ))}
        </ol>
      </section>
      <p class="note">
        The times are in milliseconds. <code>a</code> to <code>e</code> are lock nodes.{' '}
        <code>r</code>, <code>s</code> and <code>t</code> are resources. <code>c3.8</code> is a
        process of client 3, and <code>m0.9</code> moves the locks. The last number tells apart the
        processes of one client. A line ends with the reply. Of a random id, the first four digits
        are shown: <code>aa93…</code>. Brackets contain the incarnations of all nodes that a node
        knows.
      </p>
    </>
  );
}
