import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { checkHistory } from '../../packages/demo/src/checker.ts';
import { stories } from '../../packages/demo/src/stories/all.ts';
import { missingStep, variantsOf } from '../../packages/demo/src/stories/story.ts';
import { isSealed } from '../../packages/demo/src/web/recording.ts';
import { parseRecording, RecordingError } from '../../packages/page/src/real/parse-recording.ts';
import { toPerfetto } from '../../packages/page/src/real/perfetto.ts';
import { shownRun, storyPlayed } from '../../packages/page/src/real/real-run.ts';
import { recorded } from '../../packages/page/src/real/recorded.ts';

const file = new URL('../../packages/page/public/runs/story-1-token.json', import.meta.url);
const text = readFileSync(file, 'utf8');

test('a change of any member breaks the hash', async () => {
  expect(await isSealed(parseRecording(text))).toBe(true);
  for (const [from, to] of [
    [/"atMs": (\d)/, '"atMs": 1$1'],
    [/"commit": "/, '"commit": "0'],
    [/redis-server/, 'valkey-server'],
  ] as const)
    expect(await isSealed(parseRecording(text.replace(from, to))), `${from}`).toBe(false);
});

test('each story has a recorded run, with its pinned verdict and a hash that fits', async () => {
  const files = readdirSync(new URL('.', file)).map((name) => `runs/${name}`);
  expect(files.toSorted()).toEqual(recorded.map((one) => one.file).toSorted());
  const played = files.map((name) => {
    return parseRecording(readFileSync(new URL(`../${name}`, file), 'utf8'));
  });
  for (const recording of played) {
    const { title, lock, protection } = recording.variant;
    const story = storyPlayed(recording.variant);
    if (!story) throw new Error(`there is no story ${title}`);
    const found = variantsOf(story).find((one) => {
      return one.lock === lock && one.protection === protection;
    });
    expect(recording.verdict.verdict, title).toBe(found?.pinned);
    const { events } = recording;
    expect(checkHistory(events, missingStep(story, events)), title).toEqual(recording.verdict);
    expect(await isSealed(recording), title).toBe(true);
  }
  const titles = new Set(played.map(({ variant }) => variant.title));
  expect(titles).toEqual(new Set(stories.map(({ title }) => title)));
});

test('a hostile file is refused with a reason, or is shown', () => {
  const recording = JSON.parse(text);
  const member = fc.constantFrom(...Object.keys(recording));
  const event = fc.constantFrom(...Object.keys(recording.events[0]));
  const changed = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.json(),
    fc.tuple(member, fc.jsonValue()).map(([name, value]) => {
      return JSON.stringify({ ...recording, [name]: value });
    }),
    fc.tuple(event, fc.jsonValue()).map(([name, value]) => {
      const [first, ...others] = recording.events;
      return JSON.stringify({ ...recording, events: [{ ...first, [name]: value }, ...others] });
    }),
  );
  fc.assert(
    fc.property(changed, (hostile) => {
      try {
        toPerfetto(shownRun(parseRecording(hostile)));
      } catch (error) {
        expect(error).toBeInstanceOf(RecordingError);
        expect((error as RecordingError).message.length).toBeLessThan(200);
      }
    }),
    { numRuns: 300 },
  );
});
