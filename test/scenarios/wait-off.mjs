// Loaded before a client's program (`node --import`): removes the recovery wait from the script
// that readmits a node.
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

const WAIT = 'if left > 0 then';

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.endsWith('/lock/dist/redis/scripts.generated.js')) return loaded;
    const source = String(loaded.source);
    assert.equal(source.split(WAIT).length, 2, `the script has changed; expected once: ${WAIT}`);
    return { ...loaded, source: source.replace(WAIT, 'if false then') };
  },
});
