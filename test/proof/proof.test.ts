import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Coq, gaps, PROOF, THEOREMS, uncommented } from './coq.ts';
import { variants, varied } from './variants.ts';

const LOCK = join(PROOF, '..', '..', 'packages', 'lock', 'src');

/** Variants whose proofs fail early, each with the lemma. `npm run proof` checks all. */
const QUICK = [
  ['entries are compared by generation only', 'one_is_later'],
  ['Vote: numbers that were given before', 'memory_grows'],
  ['Promise: an earlier nomination is accepted', 'memory_grows'],
] as const;

let protocol: string;
beforeAll(async () => {
  protocol = await readFile(join(PROOF, 'Protocol.v'), 'utf8');
});

describe('Coq', () => {
  let coq: Coq;
  // On a new machine, this installs Coq.
  beforeAll(async () => {
    coq = await Coq.install();
    expect(await coq.compile()).toBeNull();
  }, 600_000);
  afterAll(() => coq[Symbol.asyncDispose]());

  test('each theorem rests on its own hypotheses only', async () => {
    const closed = THEOREMS.map((theorem) => [theorem, 'Closed under the global context'] as const);
    expect(await coq.assumptions()).toEqual(new Map(closed));
  });

  test.each(QUICK)(
    'without one step, the proof fails: %s, in %s',
    { timeout: 120_000 },
    async (name, lemma) => {
      const variant = variants.find((one) => one.name === name);
      if (!variant) throw new Error(`there is no variant ${name}`);
      expect(await coq.compileVariant(variant)).toMatchObject({ lemma });
    },
  );
});

test('the proof leaves nothing out', async () => {
  expect(await gaps()).toEqual([]);
});

test('the scan for gaps ignores comments, and nothing else', () => {
  expect(uncommented('a (* Admitted (* nested *) *) b Admitted.')).toBe('a  b Admitted.');
});

test('each variant has a name of its own, and changes its file', async () => {
  expect(new Set(variants.map(({ name }) => name)).size).toBe(variants.length);
  for (const variant of variants) {
    const source = await readFile(join(PROOF, `${variant.file}.v`), 'utf8');
    expect(varied(source, variant), variant.name).not.toBe(source);
  }
});

/** The actions of the protocol, each with its conditions. */
function actions(): ReadonlyMap<string, readonly string[]> {
  const step = uncommented(protocol).split('Inductive step')[1]?.split('Inductive reach')[0] ?? '';
  const parts = step.split(/\n\| /).slice(1);
  return new Map(
    parts.map((part) => {
      const [head = '', ...lines] = part.split(/^ {4}(?! )/m);
      const conditions = lines.filter((line) => line.trimEnd().endsWith('->'));
      return [head.split(' ')[0] ?? '', conditions.map((line) => line.trimEnd())];
    }),
  );
}

test('each condition of each action is removed by a variant', () => {
  const all = [...actions()].flatMap(([action, conditions]) =>
    conditions.map((condition) => `${action}: ${condition}`),
  );
  const removed = variants
    .filter(({ replace }) => replace[0]?.[1] === '')
    .map(({ action, replace }) => `${action}: ${replace[0]?.[0].trim()}`);
  expect(all.length).toBeGreaterThan(60);
  expect(removed.toSorted()).toEqual(all.toSorted());
});

describe('the table of actions and code', () => {
  const CELLS = /^\| (\w+) \| (`.*`) \| (`.*`) \|$/;

  async function rows(): Promise<readonly (readonly [string, string, string])[]> {
    const text = await readFile(join(PROOF, 'README.md'), 'utf8');
    const table = text.split('## Actions and code')[1] ?? '';
    return table.split('\n').flatMap((line) => {
      const [, action = '', code = '', condition = ''] = CELLS.exec(line) ?? [];
      return action === '' ? [] : [[action, code, condition] as const];
    });
  }

  test('has each action once', async () => {
    const named = (await rows()).map(([action]) => action);
    expect(named).toEqual([...actions().keys()]);
  });

  test('names code and conditions that exist', async () => {
    for (const [action, code, condition] of await rows()) {
      const places = code.split('<br>');
      const conditions = condition.split('<br>');
      expect(conditions, action).toHaveLength(places.length);
      for (const [at, place] of places.entries()) {
        const [, file = '', name = ''] = /^`([^`]+)` `([^`]+)`$/.exec(place) ?? [];
        const source = await readFile(join(LOCK, file), 'utf8');
        // The condition is in the code that follows the name.
        const from = source.search(definitionOf(name));
        expect(from, `${name} in ${file}`).toBeGreaterThanOrEqual(0);
        const fragment = (conditions[at] ?? '').slice(1, -1).replaceAll('\\|', '|');
        expect(source.slice(from), `${action}: ${file}`).toContain(fragment);
      }
    }
  });
});

/** Matches the line that defines a function, a method or a command. */
function definitionOf(name: string): RegExp {
  const escaped = name.replaceAll(/[.#]/g, '\\$&');
  return new RegExp(
    `^\\s*(?:export )?(?:async )?(?:local )?(?:function )?${escaped}\\b.*[({]`,
    'm',
  );
}
