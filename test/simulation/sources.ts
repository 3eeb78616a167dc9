import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

/** A mutant: replaces a step of the client's code. */
export interface Patch {
  /** The end of the file's URL. */
  readonly file: string;
  /** Each `before` occurs exactly once in the file. */
  readonly replace: readonly (readonly [before: string, after: string])[];
}

/**
 * Lets Node run the client's sources with these patches, without compiling them. The sources import
 * each other by the names of compiled files, which this maps. Call it before you import them.
 */
export function runFromSources(patches: readonly Patch[]): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const isSource = context.parentURL?.includes('/packages/lock/src/') ?? false;
      const isOurs = isSource && specifier.startsWith('.') && specifier.endsWith('.js');
      return nextResolve(isOurs ? specifier.replace(/\.js$/, '.ts') : specifier, context);
    },
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      const own = patches.filter(({ file }) => url.endsWith(file));
      if (own.length === 0) return loaded;
      return { ...loaded, source: own.reduce(patched, String(loaded.source)) };
    },
  });
}

/** @throws Error if a text to be replaced does not occur exactly once */
export function patched(source: string, { file, replace }: Patch): string {
  return replace.reduce((text, [before, after]) => {
    assert.equal(text.split(before).length, 2, `not exactly once in ${file}: ${before}`);
    return text.replace(before, () => after);
  }, source);
}
