import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

/** A step of the client's code that is replaced: a mutant. */
export interface Patch {
  /** What the file's address ends with. */
  readonly file: string;
  /** Each text is there exactly once. */
  readonly replace: readonly (readonly [before: string, after: string])[];
}

/**
 * Lets Node run the client's sources as they are written, with a patch where there is one: they name each other as they
 * are called once compiled. To be called before they are imported.
 */
export function runFromSources(patch: Patch | null): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const isSource = context.parentURL?.includes('/packages/lock/src/') ?? false;
      const isOurs = isSource && specifier.startsWith('.') && specifier.endsWith('.js');
      return nextResolve(isOurs ? specifier.replace(/\.js$/, '.ts') : specifier, context);
    },
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (!patch || !url.endsWith(patch.file)) return loaded;
      return { ...loaded, source: patched(String(loaded.source), patch) };
    },
  });
}

/** @throws Error where a text to be replaced is not there exactly once */
export function patched(source: string, { file, replace }: Patch): string {
  return replace.reduce((text, [before, after]) => {
    assert.equal(text.split(before).length, 2, `not exactly once in ${file}: ${before}`);
    return text.replace(before, () => after);
  }, source);
}
