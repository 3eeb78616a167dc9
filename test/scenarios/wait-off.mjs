// Loaded into the demo's clients by `--import`: takes the wait of a node that lost its memory out of the script that admits it.
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

const WAIT = 'if left > 0 then';

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.endsWith('/lock/dist/redis/scripts.generated.js')) return loaded;
    const source = String(loaded.source);
    assert.equal(source.split(WAIT).length, 2, `the wait is not where it was: ${WAIT}`);
    return { ...loaded, source: source.replace(WAIT, 'if false then') };
  },
});
