import { readFileSync } from 'node:fs';
import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import axe from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Answer } from '../../packages/page/src/simulator/requests.ts';
import { sha1 } from '../simulation/platform.ts';
import { simulate } from '../simulation/world.ts';
import { pinnedCells } from './harness/cells.ts';
import { evaluateInFirefox } from './harness/firefox.ts';
import { longRun } from './harness/long-run.ts';
import { buildPage, serve, startChromium, taskInWorker } from './harness/served-page.ts';

const FIRST_SEED = 20_251_121;
/** Ten thousand: FENCED_SEEDS=10000 npm test -- test/page/browser -t 'same trace'. */
const SEEDS = Number(process.env.FENCED_SEEDS ?? 15);
const FIREFOX_SEEDS = Math.min(SEEDS, 5);
/** Number of worlds that one worker runs. */
const BATCH = 100;
const SIMULATOR_GZIP_MAX = 63_000;
const SCRUB_STEPS = 50;
/** A script that moves the time control through a run, and counts the changes of the document. */
const SCRUB = `new Promise((resolve) => {
  const control = document.querySelector('.time-control input');
  const changes = { elements: 0, attributes: 0 };
  const watch = new MutationObserver((records) => {
    for (const { type, addedNodes, removedNodes } of records) {
      if (type === 'attributes') changes.attributes += 1;
      changes.elements += addedNodes.length + removedNodes.length;
    }
  });
  watch.observe(document.body, { subtree: true, childList: true, attributes: true });
  let step = 0;
  const next = () => {
    if (step === ${SCRUB_STEPS}) return resolve(changes);
    step += 1;
    control.value = (control.max * step) / ${SCRUB_STEPS};
    control.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => setTimeout(next));
  };
  next();
})`;
/** A script that adds up the layout shifts of a page. */
const WATCH_SHIFTS = `
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const { value } of list.getEntries()) shifted += value;
  }).observe({ type: 'layout-shift', buffered: true });
`;
const PLACES = [
  '#/',
  '#/story/1',
  '#/story/1?protection=token&step=5&guess=safe',
  '#/story/5?step=7&guess=lost',
  '#/sandbox?protection=token&faults=pause.1.700.4000',
  '#/remove',
  '#/real?from=runs/story-1-lock.json',
];

const parts = new AsyncDisposableStack();
let folder: string;
let server: Awaited<ReturnType<typeof serve>>;
let origin: string;
let browser: Browser;

beforeAll(async () => {
  folder = parts.use(await mkdtempDisposable(join(tmpdir(), 'fenced-page-'))).path;
  await buildPage(folder);
  server = await serve(folder);
  parts.defer(() => void server.close());
  origin = server.origin;
  browser = await startChromium();
  parts.defer(() => browser.close());
});
afterAll(() => parts.disposeAsync());

const phone = { viewport: { width: 390, height: 844 } } as const;
/** Returns a script: true if an element can be seen without scrolling. */
function isInView(selector: string): string {
  return `(() => {
    const element = document.querySelector(${JSON.stringify(selector)});
    if (!element) return false;
    const { x, y } = element.getBoundingClientRect();
    return element.contains(document.elementFromPoint(x + 5, y + 5));
  })()`;
}

async function open(hash: string, options: Parameters<Browser['newPage']>[0] = {}): Promise<Page> {
  const still = { reducedMotion: 'reduce', serviceWorkers: 'block' } as const;
  const page = await browser.newPage({ ...still, ...options });
  await page.goto(`${origin}/${hash}`);
  return page;
}

test('the simulator is small', () => {
  const bytes = gzipSync(readFileSync(join(folder, 'simulator/shipping.js'))).length;
  expect(bytes).toBeLessThan(SIMULATOR_GZIP_MAX);
});

test(`${SEEDS} worlds have the same trace in Node and in Chromium`, {
  timeout: 60_000 + SEEDS * 2_000,
}, async () => {
  const page = await open('#/');
  let lines = 0;
  for (let at = 0; at < SEEDS; at += BATCH) {
    const [firstSeed, seeds] = [FIRST_SEED + at, Math.min(BATCH, SEEDS - at)];
    const [there, here] = await Promise.all([
      page.evaluate<Answer>(taskInWorker({ kind: 'trace', firstSeed, seeds })),
      tracesHere(firstSeed, seeds),
    ]);
    expect(there, `seeds ${firstSeed} to ${firstSeed + seeds - 1}`).toEqual(here);
    lines += here.lines;
    if (SEEDS > BATCH) process.stdout.write(`${at + seeds} worlds, ${lines} equal lines\n`);
  }
  expect(lines).toBeGreaterThan(1_000 * SEEDS);
});

async function tracesHere(firstSeed: number, seeds: number) {
  let [digest, count] = ['', 0];
  for (let seed = firstSeed; seed < firstSeed + seeds; seed += 1) {
    const lines = [digest];
    await simulate(seed, { trace: (line) => lines.push(line) });
    digest = sha1(lines.join('\n'));
    count += lines.length - 1;
  }
  return { kind: 'trace' as const, digest, lines: count };
}

test('Firefox has the same traces, and shows a story', { timeout: 240_000 }, async () => {
  const task = { kind: 'trace', firstSeed: FIRST_SEED, seeds: FIREFOX_SEEDS };
  const script = `Promise.all([
    ${taskInWorker(task)},
    new Promise((resolve) => {
      const frame = document.createElement('iframe');
      frame.src = 'index.html#/story/1?protection=token&step=5&guess=safe';
      document.body.append(frame);
      const look = () => {
        const picture = frame.contentDocument.querySelector('.picture');
        if (picture) resolve(picture.textContent);
        else setTimeout(look, 50);
      };
      look();
    }),
  ])`;
  const served = { folder, server };
  const [trace, picture] = (await evaluateInFirefox(served, script)) as [Answer, string];
  expect(trace).toEqual(await tracesHere(FIRST_SEED, FIREFOX_SEEDS));
  expect(picture).toContain('33 < 34: refused');
});

test('each story has its pinned verdict in Chromium', { timeout: 120_000 }, async () => {
  const page = await open('#/');
  const cells = pinnedCells();
  expect(cells.length).toBeGreaterThan(30);
  for (const { id, protection, votesAtOnce, pinned, mark } of cells) {
    const task = { kind: 'story', id, protection, votesAtOnce };
    const answer = await page.evaluate<Answer>(taskInWorker(task));
    const verdict = answer.kind === 'run' ? answer.run.verdict.verdict : answer;
    expect(verdict, `story ${id}, ${protection} ${mark}`).toBe(pinned);
  }
});

test('a reader predicts, steps by the keyboard, and gets verdict and lesson', async () => {
  const page = await open('#/');
  await page.getByRole('link', { name: 'Stories', exact: true }).press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Stories' }).waitFor();
  expect(await page.locator('.stories li').count()).toBe(13);
  await page.getByRole('link', { name: '1. The paused client' }).press('Enter');
  await page.getByRole('radio', { name: 'token', exact: true }).press('Space');
  await page.getByRole('button', { name: /^Both updates survive/ }).press('Enter');
  for (let step = 1; step < 5; step += 1) {
    expect(await page.locator('.verdict').count()).toBe(0);
    await page.getByRole('button', { name: /(Next|Last) step/ }).press('Enter');
  }
  await page.locator('.verdict').waitFor();
  expect(await page.locator('.verdict').textContent()).toMatch(/^SAFE/);
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Next step');
  expect(await page.locator('.end').textContent()).toContain('You predicted it.');
  expect(await page.locator('.picture').textContent()).toContain('33 < 34: refused');
  const legend = await page.locator('.legend dl').textContent();
  for (const meaning of [
    'the process is stopped',
    'a reply that refuses or warns',
    '33 < 34',
    'A B C',
  ])
    expect(legend).toContain(meaning);
  expect(legend, 'no message of this run is lost').not.toContain('does not arrive');
  await page.locator('.twin summary').press('Enter');
  expect(await page.locator('.twin tbody').textContent()).toContain('33 < 34: refused');
  const link = await page.locator('.lesson a').getAttribute('href');
  expect(link).toMatch(/^https:\/\/martin\.kleppmann\.com\/.*#:~:text=/);
});

test('a fault of the sandbox changes the verdict, and the link has the whole run', async () => {
  const page = await open('#/sandbox?at=700');
  await page.locator('.frame').click({ position: { x: 5, y: 200 } });
  const atMs = await page.locator('.time-control input').inputValue();
  expect(await page.locator('.time-control output').textContent()).toBe(`${atMs} ms`);
  expect(await page.locator('.actions .main').textContent()).toBe(`Inflict it at ${atMs} ms`);
  await page.goto(`${origin}/#/sandbox?at=700`);
  await page.reload();
  expect(await page.locator('.verdict').textContent()).toMatch(/^SAFE/);
  await page.getByRole('combobox', { name: 'Client' }).selectOption('2');
  const inflict = page.getByRole('button', { name: /^Inflict it at/ });
  await page.getByRole('spinbutton', { name: 'for ms' }).fill('-5');
  expect(await inflict.isDisabled(), 'a link with such a fault cannot be opened').toBe(true);
  await page.getByRole('spinbutton', { name: 'for ms' }).fill('3000');
  await inflict.press('Enter');
  await page.locator('.chip').waitFor();
  await page.locator('.verdict.bad').waitFor();
  expect(await page.locator('.verdict').textContent()).toMatch(/^LOST/);
  const again = await open(new URL(page.url()).hash);
  await again.locator('.verdict').waitFor();
  expect(await again.locator('.verdict').textContent()).toBe(
    await page.locator('.verdict').textContent(),
  );
  await again.getByRole('radio', { name: 'token', exact: true }).press('Space');
  await again.locator('.verdict.good').waitFor();
});

test('one screen of a phone shows verdict, picture and the next fault', async () => {
  const page = await open('#/', phone);
  await page.addInitScript(WATCH_SHIFTS);
  await page.goto(`${origin}/#/sandbox?protection=lock&faults=pause.2.700.3000&at=700`);
  await page.reload();
  await page.locator('.picture').waitFor();
  expect(await page.evaluate(isInView('.frame')), 'the picture without scrolling').toBe(true);
  await page.evaluate("document.querySelector('.verdict').scrollIntoView()");
  for (const part of ['.verdict', '.axis', '.frame', '.actions .main'])
    expect(await page.evaluate(isInView(part)), part).toBe(true);
  expect(await page.evaluate<number>('shifted')).toBeLessThan(0.005);
});

test('one screen of a phone shows text, verdict and picture of the last step', async () => {
  const page = await open('#/story/5?step=7&guess=safe', phone);
  await page.getByRole('button', { name: 'Last step' }).press('Enter');
  await page.locator('.verdict').waitFor();
  for (const part of ['.step', '.verdict', '.frame'])
    expect(await page.evaluate(isInView(part)), part).toBe(true);
  const bottom = "document.querySelector('.frame').getBoundingClientRect().bottom - innerHeight";
  expect(await page.evaluate<number>(bottom)).toBeLessThanOrEqual(0);
});

test('the picture of the sandbox also shows what happens after the chosen time, and that of a story does not', async () => {
  const drawn = `(() => {
    const height = (part) => document.querySelector(part).offsetHeight;
    return height('.until') / height('.picture');
  })()`;
  const shares: number[] = [];
  for (const place of ['#/sandbox?at=200', '#/story/1?step=1&guess=safe']) {
    const page = await open(place);
    await page.locator('.picture').waitFor();
    shares.push(await page.evaluate<number>(drawn));
  }
  expect(shares[0]).toBeGreaterThan(0.9);
  expect(shares[1]).toBeLessThan(0.5);
});

test('the table of the sandbox marks the rows after the chosen time, and that of a story hides them', async () => {
  const page = await open('#/sandbox?at=200');
  await page.locator('.twin summary').press('Enter');
  const [rows, later] = [page.locator('.twin tbody tr'), page.locator('.twin .later')];
  await later.first().waitFor();
  const [all, after] = [await rows.count(), await later.count()];
  expect(await later.first().isVisible()).toBe(true);
  const summary = page.locator('.twin summary');
  expect(await summary.textContent()).toBe(`Events as a table (${all - after} of ${all})`);
  await page.goto(`${origin}/#/story/1?step=1&guess=safe`);
  await page.locator('.twin summary').press('Enter');
  await later.first().waitFor({ state: 'attached' });
  expect(await later.first().isVisible()).toBe(false);
});

test('a reader moves a fault by keys or by dragging, and chooses a message by a click', async () => {
  const page = await open('#/sandbox?protection=lock&faults=pause.2.100.3000&at=900');
  const chip = page.getByRole('slider', { name: /client 2 is stopped/ });
  await chip.press('PageUp');
  await page.waitForURL(/pause\.2\.600\.3000/);
  await page.locator('.verdict.bad').waitFor();
  const [from, axis] = [await chip.boundingBox(), await page.locator('.axis').boundingBox()];
  if (!from || !axis) throw new Error('no axis');
  await page.mouse.move(from.x + from.width / 2, from.y + 5);
  await page.mouse.down();
  await page.mouse.move(axis.x + axis.width, from.y + 5, { steps: 5 });
  await page.mouse.up();
  await page.locator('.verdict.good').waitFor();

  const line = page.locator('.picture .message path').last();
  // Also waits until the picture has stopped moving.
  await line.scrollIntoViewIfNeeded();
  const box = await line.boundingBox();
  if (!box) throw new Error('no message');
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  const chosen = page.getByRole('combobox', { name: 'Fault' });
  await expect.poll(() => chosen.inputValue()).toBe('drop');
  await page.getByRole('button', { name: /^Inflict it at/ }).press('Enter');
  await page
    .getByRole('slider', { name: /^[\d,]+ ms: the next message from .* is lost$/ })
    .waitFor();
  await page.getByRole('button', { name: 'Remove all faults' }).press('Enter');
  await page.locator('.chip').first().waitFor({ state: 'detached' });
});

test('faults at about the same time do not cover each other on a phone of 390 px', async () => {
  const faults = 'pause.2.700.3000_failover.a.710.9_rollback.b.750.9_drop.1s.800_jump.c.2500.9';
  const page = await open(`#/sandbox?protection=lock&faults=${faults}`, phone);
  const chips = page.locator('.axis .handle');
  await chips.nth(4).waitFor();
  const boxes = await Promise.all((await chips.all()).map((chip) => chip.boundingBox()));
  for (const [at, one] of boxes.entries()) {
    for (const other of boxes.slice(at + 1)) {
      if (!one || !other) throw new Error('no chip');
      const isBeside = one.x + one.width <= other.x || other.x + other.width <= one.x;
      const isAbove = one.y + one.height <= other.y || other.y + other.height <= one.y;
      expect(isBeside || isAbove).toBe(true);
    }
  }
});

test('a protection is removed, and the page finds a world that shows it', {
  timeout: 120_000,
}, async () => {
  const page = await open('#/remove', phone);
  await page.getByRole('link', { name: 'no confirm round' }).press('Enter');
  await page.locator('h2:focus', { hasText: 'no confirm round' }).waitFor();
  await page.locator('.verdict.bad').waitFor({ timeout: 60_000 });
  for (const result of ['.result h2', '.verdict', '.trace .violation'])
    expect(await page.evaluate(isInView(result)), result).toBe(true);
  expect(await page.locator('.result').textContent()).toContain('A token counts once a majority');
  const verdict = await page.locator('.verdict').textContent();
  const again = await open(new URL(page.url()).hash);
  await again.locator('.verdict').waitFor();
  expect(await again.locator('.verdict').textContent()).toBe(verdict);
});

test('a recorded run opens from a link, and the page checks hash and verdict', async () => {
  for (const [protection, verdict] of [
    ['lock', 'LOST'],
    ['token', 'SAFE'],
  ]) {
    const page = await open(`#/real?from=runs/story-1-${protection}.json`);
    await page.locator('[data-check=hash]', { hasText: 'fits' }).waitFor();
    expect(await page.locator('[data-check=verdict]').textContent()).toMatch(/ same verdict\.$/);
    expect(await page.locator('.verdict').textContent()).toMatch(new RegExp(`^${verdict}`));
    expect(await page.locator('.facts').textContent()).toMatch(/postgres: postgres \d+/);
  }
});

test('a recorded run that is chosen on a phone comes into view', async () => {
  const page = await open('#/real', phone);
  await page.getByRole('link', { name: 'The paused client' }).first().click();
  await page.locator('h1:focus', { hasText: 'The paused client' }).waitFor();
  expect(await page.evaluate(isInView('.verdict'))).toBe(true);
});

test('moving the time control through a run of a thousand steps adds and removes no element', async () => {
  const page = await open('#/real');
  const buffer = Buffer.from(JSON.stringify(longRun(200)));
  const file = { name: 'run.json', mimeType: 'application/json', buffer };
  await page.getByLabel('From a file').setInputFiles(file);
  await page.locator('.picture').waitFor();
  expect(await page.locator('.picture .event').count()).toBe(1_000);
  const changes = await page.evaluate<{ readonly elements: number; readonly attributes: number }>(
    SCRUB,
  );
  expect(changes.elements).toBe(0);
  expect(changes.attributes).toBeGreaterThanOrEqual(SCRUB_STEPS);
  expect(changes.attributes).toBeLessThan(8 * SCRUB_STEPS);
  const isOnTop = `(() => {
    const { x, y } = document.querySelector('.heads').getBoundingClientRect();
    return document.elementFromPoint(x + 200, y + 10).closest('.heads') !== null;
  })()`;
  await page.locator('.heads').scrollIntoViewIfNeeded();
  expect(await page.evaluate(isOnTop), 'the names of the lanes').toBe(true);
});

test('the page works without a network after its first visit', { timeout: 60_000 }, async () => {
  const server = await serve(folder);
  const page = await browser.newPage({ reducedMotion: 'reduce' });
  await page.goto(`${server.origin}/#/`);
  await page.evaluate('navigator.serviceWorker.ready.then(() => null)');
  server.close();
  server.closeAllConnections();
  await page.context().setOffline(true);
  await page.reload();
  for (const [place, shown] of [
    ['#/story/1?protection=token&step=5&guess=safe', '33 < 34: refused'],
    ['#/sandbox', 'write acknowledged'],
    ['#/real?from=runs/story-1-lock.json', 'is stopped'],
    ['#/remove?mutant=no+confirm+round&seed=20251121', 'VIOLATION'],
  ] as const) {
    await page.goto(`${server.origin}/${place}`);
    await page.reload();
    await page.locator('.picture, .trace', { hasText: shown }).waitFor();
  }
});

test('the page asks no other server, has no error, and moves nothing', async () => {
  const page = await open('#/');
  await page.addInitScript(WATCH_SHIFTS);
  const [requests, errors]: string[][] = [[], []];
  page.on('request', (request) => requests?.push(request.url()));
  page.on('pageerror', (error) => errors?.push(String(error)));
  page.on('console', (line) => line.type() === 'error' && errors?.push(line.text()));
  for (const place of PLACES) {
    await page.goto(`${origin}/${place}`);
    await page.reload();
    await page.waitForLoadState('networkidle');
    expect(await page.evaluate<number>('shifted'), place).toBeLessThan(0.005);
  }
  expect(requests?.length).toBeGreaterThan(PLACES.length);
  expect(requests?.filter((url) => !url.startsWith(origin) && !url.startsWith('data:'))).toEqual(
    [],
  );
  expect(errors).toEqual([]);
});

test.each(['light', 'dark'] as const)('axe finds nothing, in %s mode at 390 px', async (colour) => {
  const page = await open('#/', { colorScheme: colour, ...phone });
  for (const place of PLACES) {
    await page.goto(`${origin}/${place}`);
    await page.waitForLoadState('networkidle');
    await page.evaluate(axe.source);
    const { violations } = await page.evaluate<{ violations: readonly { readonly id: string }[] }>(
      'axe.run({ resultTypes: ["violations"] })',
    );
    expect(violations, place).toEqual([]);
    const excess = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
    expect(await page.evaluate(excess), place).toBe(0);
  }
});
