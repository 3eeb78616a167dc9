import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { GO, installed } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { mutants } from '../simulation/mutant-list.ts';
import { describeOverlap, judgeExclusion } from './exclusion.ts';
import { type Operation, sha256Of } from './history.ts';
import { fromJsonLines, toJsonLines } from './json-lines.ts';
import { judge } from './judge.ts';
import { RECORDED_LOCKS } from './locks.ts';
import { porcupine } from './porcupine.ts';
import { readLog, readRuns, reportOf } from './report.ts';

const folder = fileURLToPath(new URL('../../docs/report', import.meta.url));
const runs = readRuns(folder);
const convictions = runs.flatMap(({ conviction }) => conviction ?? []);
const overlaps = runs.flatMap(({ exclusion }) => exclusion?.conviction ?? []);
/** Seeds of convicted runs of our locks: the faults broke an assumption. The page explains each. */
const EXPLAINED = [9108];
/** Runs that were recorded before runs were announced. */
const OLD_RUNS = 137;
/** Whole histories of such runs. */
const OLD_HISTORIES = 4;
const pathOf = (file: string): string => join(folder, 'convictions', file);

test('the tables of the report are those of the recorded runs', () => {
  const page = readFileSync(join(folder, 'README.md'), 'utf8');
  expect(page, 'npm run torture -- --report docs/report').toBe(reportOf(folder));
});

test('each conviction has its unchanged file, and is of a negative control or explained by the page', () => {
  expect(readdirSync(join(folder, 'convictions')).toSorted()).toEqual(
    [...convictions, ...overlaps].map(({ file }) => file).toSorted(),
  );
  for (const { file, operations, sha256 } of [...convictions, ...overlaps]) {
    const text = readFileSync(pathOf(file), 'utf8');
    expect({ file, sha256: sha256Of(text) }).toEqual({ file, sha256 });
    expect(fromJsonLines(text)).toHaveLength(operations);
  }
  const convicted = runs.filter(({ verdict }) => verdict === 'violated');
  const ours = convicted.filter(({ subject }) => RECORDED_LOCKS.includes(subject));
  expect(ours.map(({ seed }) => seed)).toEqual(EXPLAINED);
  const page = readFileSync(join(folder, 'README.md'), 'utf8');
  for (const seed of EXPLAINED) expect(page).toContain(`seed ${seed} is convicted`);
  expect(convicted).toHaveLength(convictions.length);
});

test('mutants whose tokens are said to grow were never convicted', () => {
  const names = mutants.flatMap(({ name, tokensGrow }) => (tokensGrow ? [name] : []));
  expect(names).not.toEqual([]);
  const convicted = runs.filter(({ verdict }) => verdict === 'violated');
  expect(convicted.filter(({ subject }) => names.includes(subject))).toEqual([]);
});

test('every mutant that breaks tokens was convicted in some run, unless the list excuses it', () => {
  const names = mutants.flatMap(({ name, tokensGrow, excuse }) =>
    tokensGrow || excuse !== undefined ? [] : [name],
  );
  const convicted = new Set(runs.flatMap(({ subject, conviction }) => (conviction ? subject : [])));
  expect(names.filter((name) => !convicted.has(name))).toEqual([]);
});

test('both judges convict each recorded part again, and name the same object', async () => {
  await installed(GO);
  const files = convictions.map(({ file }) => pathOf(file));
  const verdicts = await porcupine(files);
  for (const [at, file] of files.entries()) {
    const ours = judge(fromJsonLines(readFileSync(file, 'utf8'))).map(({ object }) => object);
    expect(ours).toHaveLength(1);
    expect({ file, violated: verdicts[at]?.violated }).toEqual({ file, violated: ours });
  }
});

test('no lock of ours had two holders while no fault may have caused it, and controls had', () => {
  const judged = runs.flatMap(({ subject, exclusion }) =>
    exclusion ? { subject, ...exclusion } : [],
  );
  const violated = judged.filter(({ verdict }) => verdict === 'violated');
  expect(violated.filter(({ subject }) => RECORDED_LOCKS.includes(subject))).toEqual([]);
  expect(violated).not.toEqual([]);
  for (const { overlap, conviction } of violated) {
    const text = readFileSync(pathOf(conviction?.file ?? ''), 'utf8');
    const [first] = judgeExclusion(fromJsonLines(text)).overlaps;
    expect(first && describeOverlap(first)).toBe(overlap);
  }
});

test('recorded runs were announced before, under numbers without a gap', () => {
  const log = readLog(folder);
  const announced = log.filter(({ subject }) => subject !== undefined);
  expect(announced.map(({ run }) => run)).toEqual(announced.map((_, at) => at + 1));
  const numbered = runs.filter(({ run }) => run !== undefined);
  expect(new Set(numbered.map(({ run }) => run)).size).toBe(numbered.length);
  for (const { run, seed, seconds, workload, subject, threads } of numbered)
    expect(announced).toContainEqual(
      expect.objectContaining({ run, seed, seconds, workload, subject, threads }),
    );
  // Runs from the time before the log have no number. No more of them may come.
  expect(runs.length - numbered.length).toBe(OLD_RUNS);
});

test('the command fails if a history has no place for a violation to plant', async () => {
  await installed(GO);
  const out = mkdtempSync(join(tmpdir(), 'fenced-plant-'));
  const acquire = (at: number): Operation => ({
    process: 'c1',
    kind: 'acquire',
    object: 'lock/r',
    outcome: 'ok',
    token: `${at}`,
    callNs: at,
    returnNs: at,
  });
  const file = join(out, 'history.jsonl');
  writeFileSync(file, toJsonLines([acquire(1), acquire(2)]));
  const main = fileURLToPath(new URL('./main.ts', import.meta.url));
  const options = ['--judge', file, '--plant', '1', '--out', out];
  const { status, stdout } = spawnSync(process.execPath, [main, ...options], { encoding: 'utf8' });
  expect(stdout).toContain('token not above: 1, convicted by us 1, by porcupine 1, agreed 1');
  expect(stdout).toContain('lost update: not planted; the history has no place for it');
  expect(status).toBe(2);
});

test('each whole history is that of a run, and our judge repeats its verdicts', () => {
  const files = readdirSync(join(folder, 'histories'));
  const kept = runs.flatMap(({ history }) => history ?? []);
  expect(files.filter((file) => !kept.includes(file))).toHaveLength(OLD_HISTORIES);
  expect(kept.filter((file) => !files.includes(file))).toEqual([]);
  for (const file of files) {
    const text = gunzipSync(readFileSync(join(folder, 'histories', file))).toString();
    const run = runs.find(({ sha256 }) => sha256 === sha256Of(text));
    const history = fromJsonLines(text);
    const objects = judge(history).map(({ object }) => object);
    if (run?.exclusion) {
      const { verdict, holds, contests } = judgeExclusion(history);
      expect({ file, verdict, holds, contests }).toEqual({
        file,
        verdict: run.exclusion.verdict,
        holds: run.exclusion.holds,
        contests: run.exclusion.contests,
      });
    }
    expect({ file, objects: objects.toSorted() }).toEqual({
      file,
      objects: Object.keys(run?.violated ?? { unknown: 'history' }).toSorted(),
    });
  }
});

test('the judges agreed about each recorded run', () => {
  for (const { porcupine: said, violated } of runs) {
    const objects = Object.keys(violated).toSorted();
    expect(said).toBe(objects.length === 0 ? 'ok' : `violated: ${objects}`);
  }
});
